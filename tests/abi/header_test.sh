#!/bin/bash
# nccl.h compiles without warnings as C99, C11 and C++17, without CUDA's headers, and with them if they are installed.
# usage: header_test.sh INCLUDE_DIR CC CXX [CUDA_INCLUDE_DIR]
set -u
here=$(dirname "$0")
. "$here/../support/skip.sh"
include=$1 cc=$2 cxx=$3 cuda=${4:-}
failed=0
try() {
  echo "+ $*"
  "$@" -fsyntax-only -Wall -Wextra -Werror -I "$include" || failed=1
}
if [ -z "$cuda" ]; then
  for std in c99 c11 c17; do
    try "$cc" -std=$std -pedantic -DWEFT_NO_CUDA_HEADERS -x c "$here/header_use.c"
  done
  for std in c++11 c++17 c++20; do
    try "$cxx" -std=$std -pedantic -DWEFT_NO_CUDA_HEADERS -x c++ "$here/header_use.c"
  done
  [ -e "$include/weft.h" ] && try "$cc" -std=c99 -DWEFT_NO_CUDA_HEADERS -include "$include/weft.h" -x c "$here/header_use.c"
else
  [ -e "$cuda/cuda_runtime.h" ] || skip cuda-toolkit "no CUDA headers"
  # -isystem hides the toolkit's own warnings.
  try "$cc" -std=gnu99 -isystem "$cuda" -x c "$here/header_use.c"
  try "$cc" -std=gnu11 -isystem "$cuda" -x c "$here/header_use.c"
  try "$cxx" -std=c++17 -isystem "$cuda" -x c++ "$here/header_use.c"
fi
[ $failed = 0 ] && echo OK
exit $failed
