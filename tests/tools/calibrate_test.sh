#!/usr/bin/env bash
# `weft calibrate` keeps its measurements, the planner uses them, and plan_regret judges by them: calibrate_test.sh WEFT PLAN_REGRET
set -euo pipefail
weft=$1 plan_regret=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export WEFT_HOST_MODE=1 WEFT_CACHE=$work
"$weft" calibrate --seconds 1 >"$work/said" 2>"$work/warned" || { echo "FAILED: weft calibrate"; exit 1; }
for section in threads processes network; do
  grep -qF "[$section]" "$work"/rates-* || { echo "FAILED: no rates of $section"; exit 1; }
done
grep -qE '^factor all_reduce direct 2 1024 ' "$work"/rates-* || { echo "FAILED: no time of a plan"; exit 1; }
for codec in int8 int4 fp8 onebit topk widen; do
  grep -qE "^codec $codec [0-9.]+ [0-9.]+$" "$work"/rates-* || { echo "FAILED: no rates of codec $codec"; exit 1; }
done
# One second is too short to measure everything again.
grep -q 'small measurements were made more than once.*measure again' "$work/warned" || { echo "FAILED: no warning"; cat "$work/warned"; exit 1; }
for ranks in "" "--processes" "--processes --plain" "--own-hosts"; do
  read -ra flags <<<"$ranks"
  "$plan_regret" -t 2 "${flags[@]}" -b 1K -e 4K -r 3 --coll all_reduce,broadcast >"$work/rows"
  # Every row: collective, size, chosen plan, us, best, us, regret, interval, twice, perhaps a verdict, predicted.
  rows=$(grep -cE '^(all_reduce|broadcast) +(1024|4096) +[a-z_]+ +[0-9.]+ .* [0-9.]+\.\.[0-9.]+ ' "$work/rows") || true
  [ "$rows" = 4 ] || { echo "FAILED: $rows rows of 4"; cat "$work/rows"; exit 1; }
  grep -qE 'predicted against measured: median error [0-9]+% of 4 rows' "$work/rows" ||
    { echo "FAILED: not every row was predicted"; cat "$work/rows"; exit 1; }
done
echo OK
