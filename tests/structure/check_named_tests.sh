#!/usr/bin/env bash
# The tests that SECURITY.md and docs/reliability.md name beside their promises exist: check_named_tests.sh ROOT
set -euo pipefail
cd "$1"
failed=0 promises=0
for file in SECURITY.md docs/reliability.md; do
  # Names in backticks after "*Tests:". `dies_*` stands for all that begin so.
  names=$(tr '\n' ' ' <"$file" | grep -oE '\*Tests: [^.]*(\.[a-z][^.]*)*\.\*' | grep -oE '`[A-Za-z_]+\*?`' | tr -d '`*' | sort -u)
  for name in $names; do
    grep -rqE "\b$name" tests --include='*.cc' || { echo "$file: there is no test '$name'"; failed=1; }
  done
  # A promise is an item of the section of promises that begins in bold letters.
  section=$(sed -n '/^## \(What is promised\|Promises\)$/,/^## /p' "$file")
  all=$(grep -c '^- \*\*' <<<"$section") tested=$(grep -o '\*Tests: ' <<<"$section" | wc -l)
  ((all == tested && all > 0)) || { echo "$file: $all promises, tests beside $tested"; failed=1; }
  promises=$((promises + all))
done
((failed)) || echo "OK: $promises promises have tests beside them"
exit $failed
