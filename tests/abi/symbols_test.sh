#!/bin/bash
# The library exports exactly NCCL 2.30.7's symbols and weft*. nccl* are weak, pnccl* are strong. It has the right SONAME
# and needs only the C and C++ runtime.
# usage: symbols_test.sh LIBRARY FUNCTION_LIST SYMBOLS_OF_2.28.9 FUNCTIONS_OF_2.30.7 SANITIZER
set -u
library=$1 list=$2 published=("$3" "$4") sanitizer=${5:-}
failed=0
fail() {
  echo "FAILED: $*"
  failed=1
}

soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
[ "$soname" = libnccl.so.2 ] || fail "SONAME is '$soname', not libnccl.so.2"

if [ -z "$sanitizer" ]; then
  for needed in $(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    case $needed in
      libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.*) ;;
      libstdc++.so.* | libgcc_s.so.* | ld-linux*) ;;
      *) fail "needs $needed, which may not be installed where an NCCL program runs" ;;
    esac
  done
fi

exported=$(nm -D --defined-only "$library" | awk '{ print $NF, $(NF - 1) }' | grep -vE '^_*(asan|odr_asan|tsan)')
while read -r name kind; do
  case $name in
    ncclResetDebugInitInternal) ;;
    nccl*) [ "$kind" = W ] || fail "$name is '$kind', must be weak (W)" ;;
    pnccl*) [ "$kind" = T ] || fail "$name is '$kind', must be strong (T)" ;;
    weft*) ;;
    *) fail "exports $name, which is neither NCCL's nor weft*" ;;
  esac
done <<<"$exported"

symbols=$(sed '/^#/d; p; /Internal$/d; s/^/p/' "$list" | sort -u)
[ -n "$symbols" ] || fail "no functions in $list"
while IFS= read -r line; do
  case $line in
    '<'*) fail "does not export ${line#< }" ;;
    '>'*) fail "exports ${line#> }, which NCCL 2.30.7 does not" ;;
  esac
done < <(diff <(echo "$symbols") <(awk '$1 !~ /^weft/ { print $1 }' <<<"$exported" | sort -u))
# Everything that NVIDIA's libraries have is exported, where their lists lie beside the repository.
for names in "${published[@]}"; do
  [ -e "$names" ] || continue
  for name in $(comm -13 <(echo "$symbols") <(sort -u "$names")); do
    fail "does not export $name, which is in ${names##*/}"
  done
done
[ $failed = 0 ] && echo "OK: $(wc -l <<<"$exported") symbols"
exit $failed
