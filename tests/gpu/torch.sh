#!/usr/bin/env bash
# PyTorch with this library in place of NCCL, 2 and 4 processes under MPS: torch.sh LIBRARY. Exit 77: no GPU or no PyTorch.
set -euo pipefail
# shellcheck source=tests/support/skip.sh
source "$(dirname "$0")/../support/skip.sh"
nvidia-smi -L >/dev/null 2>&1 || skip gpu "no GPU here"
python3 -c 'import torch' 2>/dev/null || skip torch "no PyTorch here"
work=$(mktemp -d)
export CUDA_MPS_PIPE_DIRECTORY=$work/pipe CUDA_MPS_LOG_DIRECTORY=$work/log
mkdir "$work/pipe" "$work/log"
nvidia-cuda-mps-control -d
trap 'echo quit | nvidia-cuda-mps-control; rm -rf "$work"' EXIT
for processes in 2 4; do
  NCCL_SOCKET_IFNAME=lo LD_PRELOAD=$1 timeout 120 python3 "$(dirname "$0")/torch_first_contact.py" "$processes"
done
NCCL_SOCKET_IFNAME=lo LD_PRELOAD=$1 timeout 60 python3 "$(dirname "$0")/torch_several_groups.py"
NCCL_SOCKET_IFNAME=lo LD_PRELOAD=$1 timeout 60 python3 "$(dirname "$0")/torch_parallel_groups.py"
for processes in 2 4; do  # 77: this PyTorch has none
  NCCL_SOCKET_IFNAME=lo LD_PRELOAD=$1 timeout 120 python3 "$(dirname "$0")/torch_symmetric.py" "$processes" || (($? == 77))
done
