#!/usr/bin/env bash
# Prints a ring all_gather of 4 ranks as MSCCL XML: ring.sh NAME
set -euo pipefail
name=$(sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g' <<<"$1")
echo "<algo name=\"$name\" proto=\"Simple\" nchannels=\"1\" nchunksperloop=\"4\" ngpus=\"4\" coll=\"allgather\" inplace=\"1\" outofplace=\"0\" minBytes=\"0\" maxBytes=\"0\">"
step() {
  echo "<step s=\"$1\" type=\"$2\" srcbuf=\"o\" srcoff=\"$3\" dstbuf=\"o\" dstoff=\"$3\" cnt=\"1\" depid=\"-1\" deps=\"-1\" hasdep=\"0\"/>"
}
for r in 0 1 2 3; do
  echo "<gpu id=\"$r\" i_chunks=\"1\" o_chunks=\"4\" s_chunks=\"0\">"
  echo "<tb id=\"0\" send=\"$(((r + 1) % 4))\" recv=\"$(((r + 3) % 4))\" chan=\"0\">"
  step 0 s "$r"
  step 1 rcs $(((r + 3) % 4))
  step 2 rcs $(((r + 2) % 4))
  step 3 r $(((r + 1) % 4))
  echo '</tb></gpu>'
done
echo '</algo>'
