#!/usr/bin/env bash
# overlap_perf runs plans in host mode: overlap_test.sh WEFT OVERLAP_PERF
set -uo pipefail
weft=$1 perf=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export WEFT_HOST_MODE=1 WEFT_CACHE=none
failed=0
fail() { echo "FAILED: $*"; failed=1; }

# Every collective, two groups, a part of the ranks, and calls that wait for other streams.
cat >"$work/all.json" <<'STEP'
{"name": "all kinds", "ranks": 4, "groups": {"all": [0, 1, 2, 3], "pair": [[0, 1], [2, 3]]}, "ops": [
 {"id": "f", "us": 100, "axis": "tokens"},
 {"id": "r", "collective": "all_reduce", "bytes": 40000, "group": "all", "after": ["f"], "axis": "tokens"},
 {"id": "n", "us": 100, "after": ["r"], "axis": "tokens"},
 {"id": "g", "collective": "all_gather", "bytes": 4096, "group": "pair", "after": ["f"], "stream": "pairs"},
 {"id": "s", "collective": "reduce_scatter", "bytes": 4096, "group": "all", "after": ["g"]},
 {"id": "h", "us": 50, "ranks": [0, 1], "after": ["s", "n"]},
 {"id": "t", "collective": "alltoall", "bytes": 4096, "group": "all", "after": ["n"], "stream": "more"},
 {"id": "b", "collective": "broadcast", "bytes": 4096, "group": "pair", "after": ["h"], "root": 1},
 {"id": "p", "collective": "send_recv", "bytes": 4096, "group": "pair", "after": ["t"], "stream": "pairs"}]}
STEP
for passes in none centauri; do
  "$weft" overlap "$work/all.json" dgx-a100 --passes $passes --plan "$work/p.json" >/dev/null || fail "no plan"
  out=$(timeout 100 "$perf" "$work/p.json" -n 2 --json) || fail "$passes: exit $?"
  grep -q '"right":true' <<<"$out" || fail "$passes: $out"
done
timeout 100 "$perf" "$work/p.json" -n 1 | grep -q '^measured ' || fail "no text"
sed 's/"after":\[0\]/"after":[99]/' "$work/p.json" >"$work/bad.json"
"$perf" "$work/bad.json" 2>"$work/err"
[ $? = 2 ] && grep -q "line [0-9]*: call [0-9]*: 'after' must be numbers of earlier calls" "$work/err" || { fail "a bad plan"; cat "$work/err"; }
"$perf" "$work/all.json" 2>"$work/err"
[ $? = 2 ] && grep -q 'not a plan' "$work/err" || fail "a workload is no plan"
[ $failed = 0 ] && echo OK
exit $failed
