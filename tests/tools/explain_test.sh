#!/usr/bin/env bash
# weft explain names the plan that communicators would take: explain_test.sh WEFT
set -uo pipefail
weft=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export WEFT_CACHE=none
failed=0

# expect PATTERN ARGUMENTS...: a line of the output matches.
expect() {
  local pattern=$1 output
  shift
  output=$("$weft" explain "$@" 2>&1)
  grep -qE "$pattern" <<<"$output" || { echo "FAILED: weft explain $* does not say '$pattern':"; echo "$output"; failed=1; }
}

expect 'all_reduce of 8192 bytes takes one_shot$' dgx-h100 --gpus --coll all_reduce --size 8K
expect 'all_reduce of 4194304 bytes takes peer_memory$' dgx-h100 --gpus --coll all_reduce --size 4M
expect '"plan":"peer_memory"' dgx-h100 --gpus --coll all_reduce --size 4M --json
# The table marks the same plan.
expect '^\* peer_memory ' dgx-h100 --gpus --coll all_reduce --size 4M
# Without the low-latency protocols there are no packets.
NCCL_PROTO=Simple expect 'takes peer_memory$' dgx-h100 --gpus --coll all_reduce --size 8K
WEFT_PLAN=all_reduce=ring expect 'takes ring$' dgx-h100 --gpus --coll all_reduce --size 64M
NCCL_P2P_DISABLE=1 expect 'takes cpu_pair$' pcie-8x --gpus --coll all_reduce --size 64M
# Several hosts: a schedule that knows them, over the NICs beside the GPUs.
expect 'takes (synth-all_reduce-large|hierarchical)$' dgx-h100 --gpus --hosts 2 --ranks 4 --coll all_reduce --size 64M
expect '^NICs +h0.nic0 h0.nic1 h1.nic0 h1.nic1$' dgx-h100 --gpus --hosts 2 --ranks 4 --coll all_reduce --size 64M
expect '"nics":\["h0.nic0","h0.nic1","h1.nic0","h1.nic1"\]' dgx-h100 --gpus --hosts 2 --ranks 4 --coll all_reduce --size 64M --json
# A rank per host goes by rules.
expect '^simple rules decide' dgx-h100 --gpus --hosts 2 --ranks 2 --coll all_reduce
expect '"decided_by":"rules"' dgx-h100 --gpus --hosts 2 --ranks 2 --coll all_reduce --json
# Ranks that share hosts go by them, unless the array is small.
expect 'takes hierarchical$' --ranks 8 --hosts 2 --coll all_reduce --size 1M
expect 'takes one_shot$' --ranks 8 --hosts 2 --coll all_reduce --size 4K
expect 'takes [^h]' --ranks 2 --hosts 2 --coll all_reduce --size 1M
# Between hosts there are compressed candidates too, and synth makes them.
expect '^  int8:block=256 .* 0.254 of the bytes, 1 encoding, each within 0.0039 ' dgx-h100x2 --gpus --coll all_reduce --size 64M
expect '"compressed":\[\{"codec":"int' dgx-h100x2 --gpus --coll all_gather --size 64M --json
expect "codecs' rates are those of an H200" dgx-h100x2 --gpus --coll all_gather --size 64M
output=$("$weft" synth dgx-h100x2 --coll reduce_scatter --size 64M --codec int4:block=128 --json -o "$work/coded.json")
grep -qE '"verified":true.*"codec":"int4:block=128".*"passes":1' <<<"$output" || { echo "FAILED: synth --codec says $output"; failed=1; }
"$weft" verify "$work/coded.json" >/dev/null || { echo "FAILED: the coded schedule is not proved"; failed=1; }
if "$weft" synth dgx-h100 --coll all_reduce --size 64M --codec int8 >/dev/null 2>&1; then echo "FAILED: one host compresses"; failed=1; fi
if "$weft" synth dgx-h100x2 --coll all_reduce --size 64M --codec int8 -o "$work/coded.xml" >/dev/null 2>&1; then echo "FAILED: XML has codecs"; failed=1; fi
# Without a collective or a size: all of them.
expect '^broadcast +1K ' dgx1v --gpus
expect '^all_gather +1G synth-all_gather-[a-z]+ ' dgx1v --gpus --coll all_gather
# NVLink joins the hosts of a rack, and nothing of ours uses it between hosts.
expect '^note .*NVLink between hosts is not used' gb200-nvl72 --gpus --coll all_reduce --size 64M
expect '^note: NVLink between hosts is not used' gb200-nvl72 --gpus --coll all_gather
expect '"note":"NVLink between hosts is not used' gb200-nvl72 --gpus --coll all_gather --size 64M --json
expect '^ports +0 in peer memory, [1-9][0-9]* in host memory, 0 to the network' dgx1v --coll all_gather --size 64M
# What steps cost on GPUs: fewer lanes than thread blocks, where links alone ask for more.
lanes() { "$weft" synth dgx-h100x2 --coll reduce --size 64M --json "$@" | sed 's/.*"lanes":\([0-9]*\).*/\1/'; }
(($(lanes --gpus) <= 32 && $(lanes) > 32)) || { echo "FAILED: weft synth --gpus is no other answer"; failed=1; }
# What was measured on this machine says nothing about another one.
printf 'weft rates 3\nmeasured by a test\n[own_gpus]\ncall_us 2.5\n' >"$work/rates-$(hostname)"
WEFT_CACHE=$work expect 'with rates of Hopper' dgx-h100 --gpus --coll all_reduce --size 8K
expect '^ports .*; [1-9][0-9]* hops$' dgx1v --gpus --coll all_gather --size 64M
# What the environment imports comes first, on GPUs too.
schedule=$work/ours.json
"$weft" synth pcie-4x --coll all_reduce --size 64K -o "$schedule" >/dev/null || { echo "FAILED: no schedule"; failed=1; }
WEFT_SCHEDULES=$schedule expect "takes $schedule\$" --ranks 4 --coll all_reduce --size 64K
WEFT_SCHEDULES=$schedule expect "takes $schedule\$" dgx-h100 --gpus --ranks 4 --coll all_reduce --size 64K
WEFT_SCHEDULES=$schedule expect 'takes [a-z_]+$' --ranks 3 --coll all_reduce --size 64K
[ $failed = 0 ] && echo OK
exit $failed
