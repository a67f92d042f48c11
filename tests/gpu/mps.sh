#!/usr/bin/env bash
# Runs a command under its own MPS daemon, so that processes share the GPU: mps.sh COMMAND...
# Exit 77: no GPU, or no MPS.
set -uo pipefail
# shellcheck source=tests/support/skip.sh
source "$(dirname "$0")/../support/skip.sh"
nvidia-smi -L >/dev/null 2>&1 || skip gpu "no GPU here"
command -v nvidia-cuda-mps-control >/dev/null || skip mps "nvidia-cuda-mps-control is not installed"
work=$(mktemp -d)
export CUDA_MPS_PIPE_DIRECTORY=$work/pipe CUDA_MPS_LOG_DIRECTORY=$work/log
mkdir "$work/pipe" "$work/log"
if ! nvidia-cuda-mps-control -d; then
  rm -rf "$work"
  skip mps "the MPS daemon does not start"
fi
export WEFT_TEST_MPS=1
"$@"
status=$?
# A client that never ends must not keep the daemon, and this script, from ending.
echo quit | timeout 20 nvidia-cuda-mps-control || kill "$(cat "$work/pipe/nvidia-cuda-mps-control.pid")" 2>/dev/null
((status == 0)) || tail -n 20 "$work"/log/*.log 2>/dev/null
rm -rf "$work"
exit "$status"
