#!/usr/bin/env bash
# `weft bound` and `weft simulate`, called as people and scripts call them: predict_test.sh WEFT
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
weft=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$here/ring.sh" "ring of four" >"$work/ring.xml"

cat >"$work/two.json" <<'JSON'
{"name": "two", "nodes": [{"id": "g0", "type": "gpu"}, {"id": "g1", "type": "gpu"}],
 "links": [{"from": "g0", "to": "g1", "gbps": 100, "us": 0.5, "both": true}]}
JSON

fail() { echo "FAILED: $*"; exit 1; }
# has TEXT PATTERN
has() { grep -qE -- "$2" <<<"$1" || fail "no '$2' in: $1"; }
# refuses STATUS PATTERN COMMAND...: one line on stderr, nothing on stdout
refuses() {
  local expected=$1 pattern=$2 status=0
  shift 2
  "$@" >"$work/out" 2>"$work/err" || status=$?
  [[ $status == "$expected" ]] || fail "exit status $status, not $expected, of: $*"
  [[ ! -s $work/out ]] || fail "prints an answer: $*"
  [[ $(wc -l <"$work/err") == 1 ]] || fail "not one line: $(cat "$work/err")"
  has "$(cat "$work/err")" "$pattern"
}

has "$("$weft" bound ndv2x2 --coll all_gather --json)" '^\{"algbw_gbps":25\.0,'
has "$("$weft" bound ndv2x2 --coll alltoall --json)" '"algbw_gbps":3\.12(5|49999)'
has "$("$weft" bound ndv2x2 --coll all_gather)" 'at best 25 GB/s'
refuses 2 "'nonsense' is no collective" "$weft" bound ndv2x2 --coll nonsense
refuses 2 'nosuchmachine' "$weft" bound nosuchmachine --coll all_gather
refuses 2 'root 99 of 16 ranks' "$weft" bound ndv2x2 --coll broadcast --root 99

# 4 of the 8 GPUs of a DGX A100: 3 times (0.7 us and 16 KiB at 300 GB/s).
answer=$("$weft" simulate dgx-a100 "$work/ring.xml" --size 64K --json --trace "$work/trace.json")
has "$answer" '^\{"time_us":2\.2638'
has "$answer" '"bound_gbps":400\.0'
has "$answer" '"busiest":\[\{"link":"g0->nvs","utilisation":0\.0723'
has "$answer" '"critical_path":\[\{"step":"rank . lane 0 step 0"'
grep -q '"name":"rank 3 (g3)"' "$work/trace.json" || fail "the trace has no row of rank 3"
has "$("$weft" simulate dgx-a100 "$work/ring.xml" --size 64K)" 'its first 4 of 8 GPUs'
refuses 2 'size' "$weft" simulate dgx-a100 "$work/ring.xml"
refuses 2 'for 4 ranks, but .* has 2 GPUs' "$weft" simulate "$work/two.json" "$work/ring.xml" --size 1K
refuses 2 'trace.json: cannot be written' "$weft" simulate dgx-a100 "$work/ring.xml" --size 1K --trace "$work/ring.xml/trace.json"
echo OK
