#!/usr/bin/env bash
# The conformance suite on a GPU, with ranks as threads: collectives.sh TEST_COLLECTIVE. Exit 77: no GPU.
set -euo pipefail
if ! nvidia-smi -L >/dev/null 2>&1; then
  echo "skipped: no GPU here"
  [[ ,${WEFT_REQUIRE:-}, != *,gpu,* ]] || exit 1
  exit 77
fi
exec "$1" --gtest_filter='*ThreadedRanks*:*OneThreadForAllRanks*'
