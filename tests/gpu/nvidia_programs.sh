#!/usr/bin/env bash
# NVIDIA's programs, built with NVIDIA's headers, over this library: nvidia_programs.sh [--build] LIBRARY SOURCES [WORK]
#
# SOURCES has source trees of NVIDIA, which are no part of Weft: nccl-tests, and one nccl-* per version, which begins
# with a digit, as nccl-2.30.7. Made from clones by: nvidia_programs.sh --sources NCCL_CLONE TESTS_CLONE FOLDER VERSION...
# Runs NCCL's LSA all_reduce example, and all_reduce_perf with symmetric windows (-R 2) and NVIDIA's own kernels over
# them (-D 1, and vectorized -D 2), with 2, 4 and 8 processes on one GPU. --build: builds only, needs no GPU.
# WEFT_CUDA_ARCHITECTURES: 90 unless set. WORK keeps programs and logs. Exit 77: something is missing here.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/support/skip.sh
source "$here/../support/skip.sh"
if [[ ${1:-} == --sources ]]; then  # what is needed of the trees: 3 MB
  nccl=$2 tests=$3 folder=$4
  shift 4
  for version in "$@"; do
    mkdir -p "$folder/nccl-$version"
    git -C "$nccl" archive "v$version-1" | tar x -C "$folder/nccl-$version" --wildcards makefiles src/nccl.h.in \
      'src/include/nccl_device*' 'src/transport/*doca-gpunetio/include/*' '*examples/common/*' '*examples/06_device_api/*' || exit 1
  done
  mkdir -p "$folder/nccl-tests" && git -C "$tests" archive HEAD | tar x -C "$folder/nccl-tests"
  exit
elif [[ ${1:-} == --build ]]; then
  shift
  run=0
elif [[ -z ${WEFT_TEST_MPS:-} ]]; then
  exec "$here/mps.sh" "$0" "$@"
else
  run=1
fi
(($# >= 2)) || { echo "usage: nvidia_programs.sh [--build] LIBRARY SOURCES [WORK]" >&2; exit 2; }
PATH=$PATH:/usr/local/cuda/bin
for program in nvcc make mpicxx mpirun; do
  command -v $program >/dev/null || skip mpi "$program is not installed"
done
library=$(realpath "$1") sources=$(realpath "$2")
if (($# >= 3)); then
  mkdir -p "$3" && work=$(realpath "$3")
else
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi
arch=${WEFT_CUDA_ARCHITECTURES:-90}
gencode="-gencode=arch=compute_$arch,code=sm_$arch"
read -r mpi_include _ < <(mpicxx --showme:incdirs)
read -r mpi_lib _ < <(mpicxx --showme:libdirs)
mkdir -p "$work/mpi" "$work/logs"
ln -sfn "$mpi_include" "$work/mpi/include"
ln -sfn "$mpi_lib" "$work/mpi/lib"

# version TREE: sets name, code and its parts.
version() {
  local key value
  while read -r key _ value; do
    case $key in NCCL_MAJOR) major=$value ;; NCCL_MINOR) minor=$value ;; NCCL_PATCH) patch=$value ;; esac
  done <"$1/makefiles/version.mk"
  name=$major.$minor.$patch code=$(printf '%d%02d%02d' "$major" "$minor" "$patch")
}

# home TREE FOLDER: what NCCL_HOME names, with NVIDIA's headers and this library.
home() {
  mkdir -p "$2/include" "$2/lib"
  cp -r "$1"/src/include/nccl_device* "$2/include"
  cp -rT "$(find "$1/src/transport" -path '*doca-gpunetio/include' -type d)" "$2/include/nccl_device/gin/gdaki/doca_gpunetio"
  sed -e "s/\${nccl:Major}/$major/g" -e "s/\${nccl:Minor}/$minor/g" -e "s/\${nccl:Patch}/$patch/g" \
    -e "s/\${nccl:Suffix}//g" -e "s/\${nccl:Version}/$code/g" "$1/src/nccl.h.in" >"$2/include/nccl.h"
  ln -sf "$library" "$2/lib/libnccl.so.2"
  ln -sf libnccl.so.2 "$2/lib/libnccl.so"
}

# The example gives every process of a host a GPU of its own. Here they share one.
cat >"$work/one_gpu.h" <<'HEADER'
#include <cuda_runtime.h>
#define cudaSetDevice(device) cudaSetDevice(0 * (device))
HEADER

build_example() {  # TREE HOME
  local examples main
  examples=$(find "$1" -type d -path '*examples/common')
  main=$(find "$1" -path '*06_device_api/01_allreduce*' -name main.cu)
  nvcc "$gencode" -std=c++17 -O2 -DMPI_SUPPORT -DOMPI_SKIP_MPICXX -I"$2/include" -I"$examples/include" -I"$work/mpi/include" \
    -c "$examples/src/utils.cc" -o "$2/utils.o" &&
    nvcc "$gencode" -std=c++17 -O2 -DMPI_SUPPORT -DOMPI_SKIP_MPICXX --pre-include "$work/one_gpu.h" -I"$2/include" -I"$examples/include" \
      -I"$work/mpi/include" "$main" "$2/utils.o" -L"$2/lib" -lnccl -L"$work/mpi/lib" -lmpi -o "$2/example"
}

# CUDA_LIB: a toolkit's folder may have NVIDIA's libnccl.so, and comes first.
build_tests() {  # HOME
  make -C "$sources/nccl-tests/src" -j "$(nproc)" "$1/tests/all_reduce_perf" BUILDDIR="$1/tests" NCCL_HOME="$1" MPI=1 \
    MPI_HOME="$work/mpi" CUDA_LIB="$1/lib" NVCC="$(command -v nvcc) -DOMPI_SKIP_MPICXX" CXXSTD=-std=c++17 NVCC_GENCODE="$gencode"
}

failed=0 builds=()
# check NAME TEXT PROCESSES COMMAND...: passes if the command ends well and prints the text.
check() {
  local what=$1 text=$2 processes=$3 log
  shift 3
  log=$work/logs/${what//[^a-zA-Z0-9.]/_}.log
  if NCCL_TESTS_DEVICE=0 NCCL_SOCKET_IFNAME=lo timeout 120 mpirun --allow-run-as-root --oversubscribe -n "$processes" \
    "$@" </dev/null >"$log" 2>&1 && grep -qF "$text" "$log"; then
    echo "pass  $what: $(grep -E "Avg bus bandwidth|verification" "$log" | tail -n 1)"
  else
    echo "FAIL  $what: no '$text'"
    tail -n 30 "$log"
    failed=1
  fi
}

run_all() {  # VERSION HOME
  local flags processes program
  export LD_LIBRARY_PATH=$2/lib:${LD_LIBRARY_PATH:-}
  for program in "$2/example" "$2/tests/all_reduce_perf"; do
    ldd "$program" | grep -qF "$2/lib/libnccl.so.2" || { echo "FAIL  $program loads another library"; failed=1; }
  done
  for processes in 2 4 8; do
    check "example of $1, $processes processes" "verification: PASSED" "$processes" "$2/example"
    for flags in "-R 2" "-R 2 -D 1" "-R 2 -D 2"; do
      if [[ $flags == *-D* ]] && ((code < 22900)); then
        echo "skip  all_reduce_perf $flags of $1: nccl-tests wants a library of 2.28 there"
        continue
      fi
      # shellcheck disable=SC2086
      check "all_reduce_perf $flags of $1, $processes processes" "Out of bounds values : 0 OK" "$processes" \
        "$2/tests/all_reduce_perf" -g 1 -b 4 -e 64M -f 4 -c 1 -n 10 -w 2 $flags
    done
  done
  grep -qF "nccl-headers=$code nccl-library=" "$work/logs/"*"perf__R_2_of_$1_"*.log ||
    { echo "FAIL  all_reduce_perf was not built with the headers of $1"; failed=1; }
}

build() {  # TREE HOME
  home "$1" "$2" && build_example "$1" "$2" && build_tests "$2"
}

trees=()
for tree in "$sources"/nccl-[0-9]*; do
  [[ -e $tree/makefiles/version.mk ]] || continue
  trees+=("$tree")
  version "$tree"
  build "$tree" "$work/$name" >"$work/logs/build_$name.log" 2>&1 &
  builds+=($!)
done
((${#trees[@]})) || skip sources "there is no nccl-* with makefiles/version.mk in $sources"
for i in "${!trees[@]}"; do
  version "${trees[i]}"
  if wait "${builds[i]}"; then
    echo "built the example and all_reduce_perf with NVIDIA's headers of $name"
  else
    echo "FAIL  building with the headers of $name"
    tail -n 30 "$work/logs/build_$name.log"
    failed=1
    unset "trees[i]"
  fi
done
((run)) || exit "$failed"
for tree in "${trees[@]}"; do
  version "$tree"
  run_all "$name" "$work/$name"
done
exit "$failed"
