#!/bin/bash
# Runs a libFuzzer program for a fixed time. Starts from a corpus and does not change it.
# usage: run.sh PROGRAM CORPUS SECONDS. Inputs that make it fail are left beside the program, in PROGRAM.found/
set -u
program=$1 corpus=$2 seconds=$3
found=$program.found
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$found" "$work/new"

# On aarch64 the leak check takes longer than the test.
[ "$(uname -m)" != aarch64 ] || export ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}"
# One input may take at most 20 s, on a busy machine, and 1 GiB: the cost of a file is bounded.
# A different seed each time, unless WEFT_FUZZ_SEED repeats a run.
seed=${WEFT_FUZZ_SEED:-$((RANDOM * 32768 + RANDOM + 1))}
echo "WEFT_FUZZ_SEED=$seed"
"$program" -seed="$seed" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=1024 -max_len=16384 -artifact_prefix="$found/" \
  -print_final_stats=1 -verbosity=0 "$work/new" "$corpus" >"$work/log" 2>&1
status=$?
if [ $status -ne 0 ]; then
  tail -60 "$work/log"
  echo "FAILED: the input is in $found"
  exit 1
fi
grep -E 'number_of_executed_units|peak_rss_mb|slowest_unit_time_sec' "$work/log"
echo "OK: $(ls "$corpus" | wc -l) inputs to start from, $(ls "$work/new" | wc -l) found"
