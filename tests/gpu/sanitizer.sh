#!/usr/bin/env bash
# A sampled run under compute-sanitizer: sanitizer.sh TOOL TEST_GPU (memcheck, racecheck...). Exit 77: no GPU, or no such tool.
# WEFT_TEST_SANITIZED names the tests.
set -uo pipefail
# shellcheck source=tests/support/skip.sh
source "$(dirname "$0")/../support/skip.sh"
nvidia-smi -L >/dev/null 2>&1 || skip gpu "no GPU here"
tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) ||
  skip compute-sanitizer "compute-sanitizer is not installed"
# Errors that the library expects and handles (a peer that is already enabled) are not findings. Every test has its own
# process: under the tool, kernels of two ranks once hung in a process that had run another test.
read -ra tests <<<"${WEFT_TEST_SANITIZED:-Sampled.OneRank Sampled.TwoRanks Sampled.TwoRanksInAGraph Schedules.AreSampled}"
for test in "${tests[@]}"; do
  WEFT_TEST_PATIENCE=${WEFT_TEST_PATIENCE:-4} timeout 60 "$tool" --tool "$1" --error-exitcode 99 --report-api-errors no \
    "$2" --gtest_filter="$test"
  status=$?
  case $status in
    0) continue ;;
    99) echo "FAILED: $1 has findings in $test, see above" ;;
    86 | 124) echo "FAILED: $test hung under $1" ;;
    *) echo "FAILED: $test, status $status" ;;
  esac
  exit "$status"
done
