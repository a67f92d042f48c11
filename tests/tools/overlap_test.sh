#!/usr/bin/env bash
# weft volume and weft overlap: answers, files and exit codes. overlap_test.sh WEFT DATA
set -uo pipefail
weft=$1 data=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fail() { echo "FAILED: $*"; failed=1; }
# expect PATTERN ARGUMENTS...: a line of the output matches.
expect() {
  local pattern=$1 output
  shift
  output=$("$weft" "$@" 2>&1) || fail "weft $*: exit $?"
  grep -qE "$pattern" <<<"$output" || { fail "weft $* does not say '$pattern':"; echo "$output"; }
}
# refuses PATTERN ARGUMENTS...: exit 2, one line that matches, nothing on stdout.
refuses() {
  local pattern=$1 code
  shift
  "$weft" "$@" >"$work/out" 2>"$work/err"
  code=$?
  [ $code = 2 ] || fail "weft $*: exit $code, not 2"
  [ -s "$work/out" ] && fail "weft $* prints an answer and an error"
  [ "$(wc -l <"$work/err")" = 1 ] && grep -qE "$pattern" "$work/err" || { fail "weft $* does not say '$pattern':"; cat "$work/err"; }
}

gpt3=(--layers 96 --hidden 12288 --heads 96 --sequence 2048 --vocabulary 50257)
expect 'parameters +1.746e\+11 ' volume "${gpt3[@]}"
expect 'data, ZeRO 3 .*3\*383/384\*' volume "${gpt3[@]}" --data 384 --zero 3
expect '0.75 M where N is large' volume "${gpt3[@]}" --data 384 --zero 3 --zeropp
expect '"models":0.75' volume "${gpt3[@]}" --data 384 --zero 3 --zeropp --json
expect '4 l/p m 2\(t-1\)/t bsh = 4\*24\*1\*2\*7/8\*5.033e\+07' volume "${gpt3[@]}" --tensor 8 --pipeline 4
expect 'time of these' volume dgx-a100x2 "${gpt3[@]}" --tensor 8 --data 2
expect '"time_us":' volume dgx-a100x2 "${gpt3[@]}" --tensor 8 --data 2 --json
refuses 'has 16 GPUs, the layout has 32 ranks' volume dgx-a100x2 "${gpt3[@]}" --data 32
refuses 'zeropp is a form of --zero 3' volume "${gpt3[@]}" --data 8 --zeropp
refuses '96 layers do not make 5 equal stages' volume "${gpt3[@]}" --pipeline 5

cat >"$work/step.json" <<'STEP'
{"name": "two layers", "ranks": 8, "groups": {"dp": [0, 1, 2, 3, 4, 5, 6, 7]}, "ops": [
 {"id": "b1", "us": 400, "phase": "dX", "layer": 1},
 {"id": "b0", "us": 400, "phase": "dX", "layer": 0, "after": ["b1"]},
 {"id": "g1", "collective": "all_reduce", "bytes": 100000000, "group": "dp", "phase": "grad", "after": ["b1"], "stream": "compute"},
 {"id": "g0", "collective": "all_reduce", "bytes": 100000000, "group": "dp", "phase": "grad", "after": ["b0"], "stream": "compute"}]}
STEP
expect '^speedup +1\.[0-9]+x  exposed communication -' overlap "$work/step.json" dgx-h100 --passes megatron
expect '^\* megatron .*overlap-grad-reduce, a call a layer' overlap "$work/step.json" dgx-h100 --passes megatron
expect '"speedup":1\.[0-9]' overlap "$work/step.json" dgx-h100 --passes megatron --json
"$weft" overlap "$work/step.json" dgx-h100 --passes megatron --trace "$work/t.json" --plan "$work/p.json" --svg "$work/s.svg" -o "$work/g.json" >/dev/null || fail "files"
grep -q '"traceEvents"' "$work/t.json" || fail "no trace"
grep -q '"name":"dp@grad"' "$work/p.json" || fail "no plan"
grep -q '</svg>' "$work/s.svg" || fail "no picture"
expect '^before' overlap "$work/g.json" dgx-h100 # what it writes it reads
expect 'note: lancet: there is no all-to-all' overlap "$work/step.json" dgx-h100 --passes lancet,none
WEFT_CATALOGUE=$data/machines expect '^speedup +1\.[12]' overlap "$data/lancet-gpt2-s-moe-32a100.json" p4d-24xlargex4 --passes lancet

refuses "there is no pass 'fast'" overlap "$work/step.json" dgx-h100 --passes fast
refuses 'has 8 ranks; pcie-4x has 4 GPUs' overlap "$work/step.json" pcie-4x
sed 's/"us": 400, "phase": "dX", "layer": 0/"us": -1/' "$work/step.json" >"$work/bad.json"
refuses "bad.json: line 3: operation 'b0': 'us' must be a number, not negative" overlap "$work/bad.json" dgx-h100
sed 's/"layer": 1}/"layer": 1, "after": ["b0"]}/' "$work/step.json" >"$work/bad.json"
refuses "operation 'b[01]' waits for itself, in a circle" overlap "$work/bad.json" dgx-h100
sed 's/"group": "dp"/"group": "tp"/' "$work/step.json" >"$work/bad.json"
refuses "line 4: operation 'g1': there is no group 'tp'" overlap "$work/bad.json" dgx-h100
printf '\x0a\x05hello' >"$work/bad.et"
refuses 'neither JSON nor a Chakra trace in protobuf' overlap "$work/bad.et" dgx-h100
refuses 'bad.none' overlap "$work/bad.none" dgx-h100
[ $failed = 0 ] && echo OK
exit $failed
