#!/bin/bash
# Disturbs a wire of devices.sh: wire.sh NUMBER down | up | lossy PERCENT
set -eu
n=$1
case $2 in
  down) ip link set "a$n" down ;;
  up)
    # The kernel has forgotten the routes over the wire.
    ip link set "a$n" up
    ip route replace "10.8$n.0.2/32" dev "a$n" src "10.8$n.0.1" table "10$n"
    ip route replace "10.8$n.0.1/32" dev "b$n" src "10.8$n.0.2" table "11$n"
    ;;
  lossy)
    tc qdisc replace dev "a$n" root netem loss "$3%"
    tc qdisc replace dev "b$n" root netem loss "$3%"
    ;;
esac
