// Hosts on one machine: network namespaces, and between them a cable of a given rate (a veth pair
// that tc slows down), or such a cable from each to a switch (a bridge). Everything is gone when
// the processes have ended.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace weft::perf {

inline constexpr const char* kWire = "wire0";  // the interface, on both hosts

// The address of a host on the wire.
std::string wire_address(int host);
// Bytes that this host has sent and received.
struct WireBytes {
  uint64_t sent = 0, received = 0;
};
WireBytes wire_bytes();

// Starts `ranks` processes on each of the two hosts, which call play(host, rank in host) and exit
// with its result. Returns the worst result. Throws std::runtime_error if this machine does not
// allow namespaces or has no tc.
int run_on_wire(double gbit, int ranks, const std::function<int(int host, int index)>& play);

// The same with `hosts` hosts of one process each, on a switch. What a cable to the switch carries
// in either direction has the given rate.
int run_on_switch(int hosts, double gbit, const std::function<int(int host)>& play);

}  // namespace weft::perf
