#!/usr/bin/env bash
# The page of `weft show` in a real browser: show_test.sh WEFT. Exit 77: no browser.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/support/skip.sh
source "$here/../support/skip.sh"
weft=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*"; exit 1; }

"$here/ring.sh" "ring of </script> four" >"$work/ring.xml"
cat >"$work/box.json" <<'JSON'
{"name": "box", "nodes": [{"id": "g0", "type": "gpu"}, {"id": "g1", "type": "gpu"}, {"id": "g2", "type": "gpu"},
  {"id": "g3", "type": "gpu"}, {"id": "nvs", "type": "switch"}],
 "links": [{"from": "g0", "to": "nvs", "gbps": 100, "us": 0.5, "both": true}, {"from": "g1", "to": "nvs", "gbps": 100, "us": 0.5, "both": true},
  {"from": "g2", "to": "nvs", "gbps": 100, "us": 0.5, "both": true}, {"from": "g3", "to": "nvs", "gbps": 100, "us": 0.5, "both": true}]}
JSON
"$weft" show "$work/ring.xml" "$work/box.json" --size 240000 -o "$work/page.html"

# The page is self-contained and fetches nothing.
! grep -nE 'https?://|src=|@import|url\(' "$work/page.html" || fail "the page refers to something outside"
[[ $(grep -c '</script>' "$work/page.html") == 2 ]] || fail "the schedule's name ends a script"

browser=""
for candidate in "${WEFT_BROWSER:-}" chromium chromium-browser google-chrome; do
  [[ -z $candidate ]] || ! command -v "$candidate" >/dev/null || { browser=$candidate; break; }
done
[[ -n $browser ]] || skip browser "no chromium here (scripts/install-deps browser)"

# The page after its scripts ran in the browser, for an address like page.html#t=2.
# A browser may fail to start on a busy machine. That is not a failure of the page, so it is tried again.
seen() {
  local try
  for try in 1 2 3; do
    if timeout 30 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile$try" \
      --window-size=1300,800 --virtual-time-budget=1000 --dump-dom "file://$work/page.html$1" \
      >"$work/dom" 2>"$work/browser.log"; then
      cat "$work/dom"
      return
    fi
  done
  { cat "$work/browser.log"; fail "$browser ended with an error"; } >&2
}
value() { grep -oE "data-$2=\"[^\"]*\"" <<<"$1" | head -1 | cut -d'"' -f2; }
expect() { [[ $(value "$1" "$2") == "$3" ]] || fail "data-$2 is '$(value "$1" "$2")', not '$3'"; }

# 3 times (1 us of latency and 0.6 us for 60000 bytes): at 0.4 us all four GPUs send, at 4.8 us nothing moves.
page=$(seen "#t=0.4")
expect "$page" error ""
expect "$page" ready yes
expect "$page" now 400
expect "$page" rows 8
expect "$page" under-way 4
grep -q '<dd>4.80 µs<' <<<"$page" || fail "the time is not 4.8 us"
grep -q 'ring of &lt;/script&gt; four' <<<"$page" || fail "the name is not shown"
page=$(seen "#t=4.8&view=lanes&rank=2")
expect "$page" under-way 0
expect "$page" rows 1
# Chunk 1 goes from rank 1 to 2, 3 and 0.
page=$(seen "#t=0.4&chunk=1")
expect "$page" hops 3
expect "$page" under-way 1
expect "$page" rows 6
grep -q 'r1 → r2' <<<"$page" || fail "the way of the chunk is not shown"
echo OK
