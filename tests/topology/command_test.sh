#!/bin/bash
# weft topo and weft doctor as commands: formats convert into each other, errors are one line with exit status 2.
# usage: command_test.sh WEFT
set -u
weft=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
expect() { # expect NAME WANTED GOT
  [ "$2" = "$3" ] || { echo "FAILED: $1: wanted '$2', got '$3'"; failed=1; }
}
print() { "$weft" topo "$1" | sed -n '1s/.*fingerprint //p'; }

for name in pcie-8x dgx-h100x2; do
  "$weft" topo $name --format json >"$folder/m.json"
  expect "$name as JSON" "$(print $name)" "$(print "$folder/m.json")"
  expect "$name twice" "$(cat "$folder/m.json")" "$("$weft" topo "$folder/m.json" --json)"
done
"$weft" topo pcie-8x --format nccl >"$folder/m.xml"
expect "pcie-8x as NCCL XML" "$(print pcie-8x)" "$(print "$folder/m.xml")"
"$weft" topo pcie-8x --format svg | grep -q '^</svg>$' || { echo "FAILED: no SVG"; failed=1; }
"$weft" topo pcie-8x --format dot | grep -q '^digraph' || { echo "FAILED: no dot"; failed=1; }
echo '{"hosts": ["m.xml", {"machine": "pcie-4x", "count": 2}]}' >"$folder/cluster.json"
expect "a cluster" "cluster: 3 hosts, 16 GPUs, 4 NICs" \
  "$("$weft" topo "$folder/cluster.json" | sed -n '1s/^[^:]*: \(.*\), fingerprint.*/cluster: \1/p')"

fails() { # fails NAME ARGUMENT...
  local name=$1 out err
  shift
  out=$("$weft" "$@" 2>"$folder/err")
  expect "$name: exit status" 2 $?
  expect "$name: output" "" "$out"
  expect "$name: lines" 1 "$(wc -l <"$folder/err" | tr -d ' ')"
}
echo '<system version="1"><cpu/></system>' >"$folder/bad.xml"
fails "an unknown name" topo no-such-machine
fails "a bad file" topo "$folder/bad.xml"
fails "several hosts in NCCL's format" topo dgx1vx2 --format nccl
NCCL_TOPO_FILE="$folder/bad.xml" "$weft" topo >"$folder/out" 2>/dev/null || { echo "FAILED: this machine"; failed=1; }
grep -q 'numaid is missing (the file is not used)' "$folder/out" || { echo "FAILED: no word on the bad file"; failed=1; }
"$weft" doctor >/dev/null || { echo "FAILED: doctor"; failed=1; }
"$weft" doctor --json | grep -q '^{"findings"' || { echo "FAILED: doctor --json"; failed=1; }
[ $failed = 0 ] && echo "OK"
exit $failed
