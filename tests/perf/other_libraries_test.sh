#!/bin/bash
# Programs that compare Weft with NVIDIA's library start with either: they need no name that only Weft has.
# usage: other_libraries_test.sh REPOSITORY_ROOT PROGRAM...
set -u
# shellcheck source=tests/support/skip.sh
source "$1/tests/support/skip.sh"
shift
command -v nm >/dev/null || skip nm "there is no nm"
failed=0
for program in "$@"; do
  needed=$(nm -D --undefined-only "$program" | awk '$1 == "U" && $2 ~ /^weft/ { print $2 }')
  [[ -z $needed ]] && continue
  printf 'FAILED: %s needs %s\n' "$program" "$needed"
  failed=1
done
exit "$failed"
