#!/bin/bash
# weft verify and weft run: exit codes, errors of one line, results as one JSON object.
# usage: schedules_test.sh WEFT CORPUS
set -u
weft=$1 corpus=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# expect CODE PATTERN ARGUMENT...: runs weft. Its output (stdout and stderr) must match; an error must be one line on stderr.
expect() {
  local code=$1 pattern=$2 status=0
  shift 2
  "$weft" "$@" >"$work/out" 2>"$work/err" || status=$?
  if [ "$status" != "$code" ]; then
    echo "FAILED: weft $* ended with $status, not $code: $(cat "$work/out" "$work/err")"
    failed=1
  fi
  if ! cat "$work/out" "$work/err" | grep -qE -- "$pattern"; then
    echo "FAILED: weft $* did not say '$pattern': $(cat "$work/out" "$work/err")"
    failed=1
  fi
  if [ "$code" = 2 ] && { [ -s "$work/out" ] || [ "$(wc -l <"$work/err")" != 1 ]; }; then
    echo "FAILED: weft $* must say one line on stderr and nothing else: $(cat "$work/out" "$work/err")"
    failed=1
  fi
}

good=$corpus/msccl_xml/chain.xml
pair=$corpus/schedule_json/pair.json
expect 0 '^verified: all_reduce of 3 ranks, in place and out of place, 1 chunks a block, 4 lanes, 5 steps$' verify "$good"
expect 0 '"verified":true,"collective":"all_reduce","ranks":2.*"least_fifo_depth":1' verify "$pair" --json
expect 0 'verified' verify "$good" --coll all_reduce --fifo-depth 1

# A CPU node reduces for three ranks.
cpu=$corpus/schedule_json/cpu_node.json
expect 0 '^verified: all_reduce of 3 ranks, in place and out of place, 1 chunks a block, 7 lanes, 8 steps$' verify "$cpu"
for ranks in thread process; do
  expect 0 '^in_place .* 0 elements wrong$' run "$cpu" --size 1M --ranks-as $ranks
done
expect 0 'on rtx4090-8x with CPU nodes: 1$' simulate rtx4090-8x "$cpu" --size 1M
expect 2 'reaches no CPU' simulate ndv2 "$cpu" --size 1M
"$weft" show "$cpu" rtx4090-8x --output "$work/cpu.html" && [ -s "$work/cpu.html" ] || { echo "FAILED: no drawing of $cpu"; failed=1; }

# Rank 0 waits for a message that no rank sends.
sed '/"from": \[{"input": 0}\], "to": \[{"peer": 0}\]/d' "$pair" >"$work/waits.json"
expect 1 "^weft: .*waits.json: .* refused: rank 0 lane 0 step 1 \(output chunk 0\) never runs: it waits for a message from rank 1" \
  verify "$work/waits.json"
expect 1 '^{"verified":false,"reason":".*never runs' verify "$work/waits.json" --json
expect 1 'never runs' run "$work/waits.json" --size 1K
sed 's/ coll="allreduce"//' "$good" >"$work/nameless.xml"
expect 1 "nameless.xml:2: <algo>: has no attribute coll: say which collective it is" verify "$work/nameless.xml"
expect 0 'verified' verify "$work/nameless.xml" --coll all_reduce

head -c 300 "$good" >"$work/short.xml"
expect 2 "^weft: .*short.xml:[0-9]+: not well-formed XML" verify "$work/short.xml"
expect 2 "short.xml:[0-9]+: not well-formed XML" run "$work/short.xml" --size 1K
expect 2 "there is no such file" verify "$work/missing.xml"
expect 2 "not allreduce|is no collective" verify "$good" --coll allreduce
expect 2 "coll is 'allreduce', not broadcast" verify "$good" --coll broadcast
expect 2 "SCHEDULE is required" verify
expect 2 "fifo-depth" verify "$good" --fifo-depth 0
expect 2 "size is required" run "$good"
expect 2 "size" run "$good" --size lots
expect 2 "ranks-as" run "$good" --size 1K --ranks-as cat

for ranks in thread process; do
  expect 0 '^{"time_us":[0-9.e+]+,"wrong":0,"collective":"all_reduce","ranks":3,"bytes":65536,' \
    run "$good" --size 64K --ranks-as $ranks --json
  expect 0 'out_of_place .* 0 elements wrong' run "$pair" --size 1000 --ranks-as $ranks
done
# Without a GPU, --gpu says so. (Where there is one, WEFT_HOST_MODE hides it.)
for ranks in thread process; do
  WEFT_HOST_MODE=1 expect 2 'there is no GPU to run on' run "$pair" --size 1K --gpu --ranks-as $ranks
done
# A size is rounded down to whole elements, at least one.
expect 0 '"bytes":4,' run "$pair" --size 0 --json
[ $failed = 0 ] && echo OK
exit $failed
