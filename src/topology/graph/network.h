// Joins several hosts into one Machine through their NICs. Hosts may differ in everything.
#pragma once

#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

// The network between the NICs of all hosts. The default is one non-blocking switch.
struct Fabric {
  // NIC r of every host connects to the switches of rail r.
  bool rails = false;
  // With rails: a spine connects the switches of different rails. Without it rails are separate
  // networks, and NVLink inside a host must carry data from rail to rail.
  bool spine = true;
  // The hosts of each rack, by position. A rack has its own leaf switches. Empty: one rack.
  std::vector<std::vector<int>> racks;
  // The bandwidth from leaf to spine is the sum of the NICs below, divided by this.
  double oversubscription = 1;
  // Latency of one hop between network switches.
  double switch_us = 0.3;
};

// Puts the host's number in front of ids ("h1.g0"), unless there is only one host and no network is
// needed. A host that is itself a cluster (an NVL72 rack) keeps its hosts apart. NVSwitches of one
// fabric (fact "fabric", as NVML reports it) become one node.
Machine join(const std::vector<Machine>& hosts, const Fabric& network = {});

// Joins the NICs of a machine of several hosts by one non-blocking switch, if nothing joins them: a
// rack may be written down without its network. Appends the switch and its links.
void join_nics(Machine& machine);

// Joins `count` copies of a host.
Machine replicate(const Machine& host, int count, const Fabric& network = {});

}  // namespace weft
