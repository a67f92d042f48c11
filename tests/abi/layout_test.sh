#!/bin/bash
# Our nccl.h and the CUDA toolkit's must print the same values, sizes, offsets and function types. The comparison must
# include everything that the toolkit's header defines.
# usage: layout_test.sh PRINT_LAYOUT_SOURCE OUR_PROGRAM [TOOLKIT_PROGRAM TOOLKIT_NCCL_H]
set -u
. "$(dirname "$0")/../support/skip.sh"
source_file=$1 ours=$2 toolkit=${3:-} header=${4:-}
[ -n "$toolkit" ] && [ -e "$header" ] || skip cuda-toolkit "no CUDA toolkit with an nccl.h to compare with"
version=$(awk '$1 == "#define" && $2 == "NCCL_VERSION_CODE" { print $3 }' "$header")
[ "$version" = 22809 ] || skip cuda-toolkit "the toolkit's nccl.h is version $version, ours is 22809"

failed=0
if ! diff <("$ours") <("$toolkit"); then
  echo "FAILED: lines with < are ours, with > the toolkit's"
  failed=1
fi

# The printing program must name every macro, enumerator and function of the toolkit's header.
names=$({
  grep -oE '^ *# *define +NCCL_[A-Za-z0-9_]+' "$header" | awk '{ print $NF }'
  grep -oE '\bp?nccl[A-Z][A-Za-z0-9_]*( *=|\()' "$header" | grep -oE 'p?nccl[A-Za-z0-9_]+'
} | sort -u)
for name in $names; do
  case $name in NCCL_H_ | ncclRedOpCreate) continue ;; esac
  if ! grep -qw "$name" "$source_file"; then
    echo "FAILED: print_layout.cc does not compare $name"
    failed=1
  fi
done
[ $failed = 0 ] && echo "OK: $("$ours" | wc -l) lines equal, $(echo "$names" | wc -l) names covered"
exit $failed
