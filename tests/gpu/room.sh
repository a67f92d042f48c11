#!/usr/bin/env bash
# Whether there is room for all on one GPU: room.sh BUILD [SECONDS] [BEFORE]. One line per part, exit 1 if one failed.
# BUILD: a build with test_gpu and rankperf. SECONDS: of calls in random orders across communicators, 600 unless told.
# BEFORE: a libnccl.so.2 to compare rankperf with. Exit 77: no GPU.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/support/skip.sh
source "$here/../support/skip.sh"
nvidia-smi -L >/dev/null 2>&1 || skip gpu "no GPU here"
(($# >= 1)) || { echo "usage: room.sh BUILD [SECONDS] [BEFORE]" >&2; exit 2; }
build=$(realpath "$1") seconds=${2:-600} before=${3:-}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

# part NAME COMMAND...
part() {
  local name=$1 began=$SECONDS status=0
  shift
  "$@" >"$log" 2>&1 || status=$?
  case $status in
    0) echo "pass  $name, $((SECONDS - began)) s" ;;
    77) echo "skip  $name" ;;
    *)
      echo "FAIL  $name, status $status"
      tail -n 30 "$log"
      failed=1
      ;;
  esac
}
# shellcheck disable=SC2317  # part calls it
tests() { "$here/mps.sh" "$build/bin/test_gpu" --gtest_filter="$1"; }
# shellcheck disable=SC2317
torch() {
  python3 -c 'import torch' 2>/dev/null || return 77
  NCCL_SOCKET_IFNAME=lo timeout 120 "$here/mps.sh" env LD_PRELOAD="$build/lib/libnccl.so.2" python3 "$here/$1"
}

if [[ -n $before ]]; then  # first: other work changes the GPU's clock
  part "rankperf beside the version before" "$here/../../perf/compare_rankperf" "$before" "$build/lib" 8 2 4 --rankperf "$build/bin/rankperf"
  grep '^# geometric' "$log"
  sort -gk6 "$log" | awk 'NF == 6 && $6 + 0 > 0 { print "# worst: " $0; exit }'
fi
for run in {1..10}; do part "world and pair groups of PyTorch, run $run" torch torch_several_groups.py; done
part "data, tensor and pipeline groups of PyTorch beside GEMMs" torch torch_parallel_groups.py
part "a kernel that needs a whole SM; 50 communicators; slots" tests 'GpuBudget.*-*AnyOrder*'
part "64 ranks in 4 processes" tests 'ManyRanks.*'
WEFT_TEST_SECONDS=$seconds part "8 communicators in random orders for $seconds s" tests 'GpuBudget.*AnyOrder*'
exit "$failed"
