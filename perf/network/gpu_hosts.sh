#!/usr/bin/env bash
# Ranks that share one GPU as several hosts, over sockets on loopback: gpu_hosts.sh [RANKS (8)] [RANKS_PER_HOST (4)] [COLLECTIVE...]
# Prints us per call, out of place. Run it as tests/gpu/mps.sh perf/network/gpu_hosts.sh. WEFT_NET_LANES=0 takes FIFOs in host memory.
# LIBRARY: a libnccl.so.2 other than this one. SIZES: -b 8K -e 32M -f 16 unless told. CHECK=0 does not check the data.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

ranks=${1:-8} per_host=${2:-4}
shift $(($# < 2 ? $# : 2))
collectives=("$@")
((${#collectives[@]})) || collectives=(all_reduce all_gather reduce_scatter alltoall)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export per_host CHECK=${CHECK:-1} LIBRARY=${LIBRARY:-} SIZES=${SIZES:--b 8K -e 32M -f 16} NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo}
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-8}  # more of all processes together are refused
for collective in "${collectives[@]}"; do
  program=build/release/bin/${collective}_perf
  # shellcheck disable=SC2016
  mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$ranks" bash -c \
    'NCCL_HOSTID=host$((OMPI_COMM_WORLD_RANK / per_host)) LD_PRELOAD=$LIBRARY exec "$0" $SIZES -n 10 -w 3 -c $CHECK' "$program" >"$log" 2>&1 ||
    { cat "$log" >&2; exit 1; }
  echo "$ranks ranks, $per_host a host, $collective: $(awk '/^ +[0-9]+ /{ printf "%s B %s us (%s wrong)  ", $1, $6, $9 }' "$log")"
done
