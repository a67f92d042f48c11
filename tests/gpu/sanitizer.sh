#!/usr/bin/env bash
# A sampled run under compute-sanitizer: sanitizer.sh TOOL TEST_GPU (memcheck, racecheck...). Exit 77: no GPU, or no such tool.
# WEFT_TEST_SANITIZED chooses the tests (default Sampled.*).
set -uo pipefail
# shellcheck source=tests/support/skip.sh
source "$(dirname "$0")/../support/skip.sh"
nvidia-smi -L >/dev/null 2>&1 || skip gpu "no GPU here"
tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) ||
  skip compute-sanitizer "compute-sanitizer is not installed"
# Calls whose error the library expects and handles (a peer that is already enabled) are no findings.
WEFT_TEST_PATIENCE=${WEFT_TEST_PATIENCE:-4} timeout 170 "$tool" --tool "$1" --error-exitcode 99 --report-api-errors no \
  "$2" --gtest_filter="${WEFT_TEST_SANITIZED:-Sampled.*}"
status=$?
case $status in
  0) ;;
  99) echo "FAILED: $1 has findings, see above" ;;
  86 | 124) echo "FAILED: hung under $1. If Sampled.OneRank passed, the tool may not let two ranks' kernels run at once" ;;
  *) echo "FAILED: status $status" ;;
esac
exit "$status"
