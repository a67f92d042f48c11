#!/bin/bash
# Our nccl.h has the values, sizes, offsets and function types of NVIDIA's 2.30.7. Older headers, 2.29.7 and the CUDA
# toolkit's, have nothing else, except the version and what grows at its end. The comparison must include everything
# that the toolkit's header defines.
# usage: layout_test.sh PRINT_LAYOUT_SOURCE OUR_PROGRAM [TOOLKIT_PROGRAM TOOLKIT_NCCL_H]
set -u
here=$(dirname "$0")
. "$here/../support/skip.sh"
source_file=$1 ours=$2 toolkit=${3:-} header=${4:-}
failed=0

if ! diff <("$ours") "$here/layout_2.30.7.txt"; then
  echo "FAILED: lines with < are ours, with > NCCL 2.30.7's"
  failed=1
fi

# The name of the struct has the version of its last change.
plain() { sed 's/ncclConfig_v2[0-9]*/ncclConfig/' | sort; }
# Reads the lines of an older version.
expect_all() {
  local changed
  changed=$(comm -23 <(plain) <("$ours" | plain) |
    grep -vE '^(NCCL_(MINOR|PATCH|VERSION_CODE)|ncclNumResults|sizeof\(ncclConfig_t\)|config\.(size|version)|sim\.version) ')
  if [ -n "$changed" ]; then
    echo "FAILED: $1 has these lines, ours are different:" "$changed"
    failed=1
  fi
}
expect_all "NCCL 2.29.7" <"$here/layout_2.29.7.txt"

if [ -n "$toolkit" ] && [ -e "$header" ]; then
  expect_all "the toolkit" < <("$toolkit")
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
fi
[ $failed = 0 ] || exit $failed
echo "OK: $("$ours" | wc -l) lines equal"
[ -n "$toolkit" ] && [ -e "$header" ] || skip cuda-toolkit "no CUDA toolkit with an nccl.h to compare with"
