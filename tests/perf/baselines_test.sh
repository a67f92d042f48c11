#!/bin/bash
# The baselines of this tree keep to their schema, the page made from them is up to date, and the checks can fail.
# usage: baselines_test.sh REPOSITORY_ROOT
set -u
perf=$1/perf
# shellcheck source=tests/support/skip.sh
source "$1/tests/support/skip.sh"
command -v python3 >/dev/null || skip python3 "there is no python3"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# expect CODE TEXT COMMAND...: the command ends with CODE and prints TEXT.
expect() {
  local code=$1 text=$2 got=0 output
  shift 2
  output=$("$@" 2>&1) || got=$?
  if [[ $got != "$code" || $output != *"$text"* ]]; then
    printf 'FAILED: %s\n  ended with %s instead of %s, or does not say "%s":\n%s\n' "$*" "$got" "$code" "$text" "$output"
    failed=1
  fi
}

# row ID VALUE [MORE_FIELDS]
row() {
  printf '{"id": "%s", "value": %s, "unit": "us", "command": "x", "date": "2026-01-31", "machine": "m"%s}\n' "$1" "$2" "${3:-}"
}
check=$perf/check_baselines

# This tree.
expect 0 "OK: " "$check"
expect 0 "" "$perf/page" --check

# Malformed files.
mkdir "$work/b"
file=$work/b/a.jsonl
checked() { "$check" --baselines "$work/b" "$@"; }
row a/b 1 >"$file"
expect 0 "OK: 1 baselines" checked
{ row a/b 1; echo '{"id": '; } >"$file"
expect 2 "a.jsonl:2: not JSON" checked
{ row a/b 1; echo; } >"$file"
expect 2 "a.jsonl:2: not JSON" checked
echo '{"id": "a/b", "value": 1}' >"$file"
expect 2 "no field 'unit'" checked
row a/b '"1"' >"$file"
expect 2 "field 'value' has the wrong type" checked
row a/b 1 ', "beter": "lower"' >"$file"
expect 2 "unknown field 'beter'" checked
row a/b 1 ', "better": "less"' >"$file"
expect 2 "neither 'lower' nor 'higher'" checked
row a/b 1 ', "low": 2' >"$file"
expect 2 "not between" checked
row a/b 1 >"$file"
row a/b 2 >"$work/b/b.jsonl"
expect 2 "'a/b' occurs twice" checked
rm "$work/b/b.jsonl"

# Regressions.
lower=', "better": "lower", "bar": 105' higher=', "better": "higher"'
{ row p/w/8/time 100 "$lower"; row p/w/8/rate 100 "$higher"; row p/w/8/hung 0 ', "better": "lower"'; row p/n/8/time 300 "$lower"; } >"$file"
new() { "$check" --baselines "$work/b" --new "$work/new" "$@"; }
{ row p/w/8/time 109; row p/w/8/rate 92; row p/w/8/hung 0; } >"$work/new"
expect 0 "3 compared, 0 worse" new
expect 0 "misses its bar 105" new
row p/w/8/time 112 >"$work/new"
expect 1 "WORSE" new
expect 0 "0 worse by more than 20%" new --tolerance 0.2
expect 1 "not in the new run: p/w/8/rate" new
expect 0 "2.679" new --against n
row p/w/8/rate 88 >"$work/new"
expect 1 "WORSE" new
row p/w/8/hung 1 >"$work/new"
expect 1 "WORSE" new
{ row p/w/8/time 100; row p/w/8/other 1; } >"$work/new"
expect 0 "no baseline: p/w/8/other" new
row p/w/8/other 1 >"$work/new"
expect 1 "0 compared" new
{ row p/w/8/time 90; row p/w/8/time 150; row p/w/8/time 95; } >"$work/new" # medians count
expect 0 "1 compared, 0 worse" new
sed 's/"us"/"ms"/' "$file" >"$work/new"
expect 2 "unit 'ms'" new

# What programs print.
cat >"$work/rankperf" <<'END'
# library version 23007, 8 ranks on one GPU
# D2D copy 4000.0 GB/s (read+write)
collective           size(B)     wall(us)    graph(us)      algbw  minHBM GB/s   wrong
# init 0.267 s
all_reduce              8192         22.2         20.8       0.39          6.3       0
all_reduce          67108864        956.3        954.0      70.35       1000.0       0
END
expect 0 '"id": "rankperf/nccl/8/all_reduce/8K/graph_us", "value": 20.8,' "$check" --from rankperf --library nccl "$work/rankperf"
expect 0 '"id": "rankperf/weft/8/all_reduce/64M/limit_fraction", "value": 0.25,' "$check" --from rankperf "$work/rankperf"
"$check" --from rankperf --library nccl "$work/rankperf" >"$file"
sed 's/ 20.8 / 10.4 /; s/956.3        954.0/478.1        477.0/' "$work/rankperf" >"$work/new"
expect 0 "7 compared, 0 worse" new --from rankperf --library nccl
expect 0 "against NCCL's baselines, better of stream and graph, 2 cells: geometric mean 2.00, least 2.00" \
  new --from rankperf --against nccl
sed -i 's/6.3       0/6.3       7/' "$work/rankperf"
expect 2 "wrong values" "$check" --from rankperf "$work/rankperf"
cat >"$work/mpi" <<'END'
# MPI and weft, 2 ranks, medians of 15 alternating repetitions
all_reduce            65536       28.60       7.80       5.40     3.667    5.296                          0
all_reduce                8        0.43       0.51       0.51     0.843    0.843       +0.08     +0.08       0
# geometric mean of MPI/weft at >= 64 KiB: malloc 2.670, MemAlloc 3.520
# most extra us at <= 4 KiB: +0.18 (broadcast 8 malloc)
END
expect 0 '"id": "mpi_compare/weft-memalloc/2/all_reduce/64K/us", "value": 5.4,' "$check" --from mpi_compare "$work/mpi"
expect 0 '"id": "mpi_compare_tcp/weft-malloc/2/speedup_over_mpi", "value": 2.67,' "$check" --from mpi_compare --own-hosts "$work/mpi"
"$check" --from mpi_compare "$work/mpi" >"$file"
sed 's/7.80/9.80/' "$work/mpi" >"$work/new"
expect 1 "9 compared, 1 worse" new --from mpi_compare
sed 's/28.60/99.0/' "$work/mpi" >"$work/new" # MPI's speed is not ours to judge
expect 0 "9 compared, 0 worse" new --from mpi_compare
expect 2 "no line of synth_perf" "$check" --from synth_perf "$work/mpi"

# A page that is not up to date.
cp -r "$perf/baselines" "$work/other"
sed -i '/"rankperf\/weft\/speedup_over_nccl"/s/"value": [0-9.]*, \(.*\)"low": [0-9.]*/"value": 1.5, \1"low": 1.4/' "$work/other/h200.jsonl"
expect 1 "performance.md is not up to date" "$perf/page" --check --baselines "$work/other"
expect 0 "" "$perf/page" --baselines "$work/other" --docs "$work/docs"
expect 0 "" "$perf/page" --check --baselines "$work/other" --docs "$work/docs"
expect 0 "1.5 times as fast" cat "$work/docs/performance.md"

# Two libraries in turn: a stand-in for rankperf, which takes twice as long with the first one.
cat >"$work/stand_in" <<'END'
#!/bin/bash
us=10
[[ ${LD_PRELOAD:-} != *slow* ]] || us=20
for figure in wall graph; do
  printf '{"id": "rankperf/weft/%s/all_reduce/8K/%s_us", "value": %s, "unit": "us", "command": "x", "date": null, "machine": "m"}\n' "$1" $figure $us
done
END
chmod +x "$work/stand_in"
echo weftHostMode | tee "$work/slow" >"$work/fast"
expect 0 "better of stream and graph, 2 cells: 2.000" "$perf/compare_rankperf" "$work/slow" "$work/fast" 2 4 --rounds 1 --rankperf "$work/stand_in"
expect 1 "no library" "$perf/compare_rankperf" "$work/none" "$work/fast" 2 --rankperf "$work/stand_in"

# The same for host mode: a stand-in for mpirun, whose MPI does not change.
cat >"$work/mpirun" <<'END'
#!/bin/bash
us=2.00
[[ $* != *LD_PRELOAD=*slow* ]] || us=2.20
echo '# MPI and weft, 2 ranks, medians of 15 alternating repetitions'
echo "all_reduce 4096 1.00 $us $us 1.0 1.0 +0.00 +0.00 0"
echo "all_reduce 1048576 80.00 50.00 50.00 1.0 1.0 0"
END
chmod +x "$work/mpirun"
in_turn() { expect "$1" "$2" "$perf/compare_host" "$work/$3" "$work/$4" --rounds 1 --mpirun "$work/mpirun" --most-cost 3; }
in_turn 0 "by itself, up to 4 KiB, 2 cells: 1.100" slow fast
in_turn 0 "beside MPI, larger, 2 cells: 1.000" slow fast
in_turn 0 "B takes 4.7% less time than A" slow fast
in_turn 1 "that is more than 3.0%" fast slow
in_turn 1 "no library" none fast

((failed)) || echo "OK"
exit $failed
