#!/bin/bash
# Two hosts in one guest: soft-RoCE devices weft_a0 and weft_a1 on one side, weft_b0 and weft_b1 on the other, joined by
# two links. Packets really cross the links, so that links can be lossy or down. Then runs the command.
set -eu

for wire in 0 1; do
  a=a$wire b=b$wire at=10.8$wire.0.1 bt=10.8$wire.0.2
  # Local addresses are reached over the link, not around it.
  cat <<END
link add $a type veth peer name $b
addr add $at/24 dev $a
addr add $bt/24 dev $b
link set $a mtu 4200 up
link set $b mtu 4200 up
rule add pref 10 iif $a lookup local
rule add pref 10 iif $b lookup local
route add $bt/32 dev $a src $at table 10$wire
route add $at/32 dev $b src $bt table 11$wire
rule add pref 20 from $at to $bt lookup 10$wire
rule add pref 20 from $bt to $at lookup 11$wire
END
done | ip -batch -
ip -batch - <<END
rule add pref 30 lookup local
rule del pref 0
END
echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
for wire in a0 b0 a1 b1; do
  echo 1 >/proc/sys/net/ipv4/conf/$wire/accept_local
  echo 0 >/proc/sys/net/ipv4/conf/$wire/rp_filter
  echo "link add weft_$wire type rxe netdev $wire"
done | rdma -b -
exec "$@"
