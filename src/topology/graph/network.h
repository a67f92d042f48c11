// Several hosts become one Machine through their NICs. Hosts may differ in everything.
#pragma once

#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

// How the NICs of all hosts are joined. The default is one switch that never blocks.
struct Fabric {
  // NIC r of every host sits on the switches of rail r.
  bool rails = false;
  // With rails: switches of different rails reach each other through a spine. Otherwise rails are
  // separate networks, and a host's own NVLink must carry data from rail to rail.
  bool spine = true;
  // Hosts of each rack, by position; a rack has leaf switches of its own. Empty: one rack.
  std::vector<std::vector<int>> racks;
  // Leaf to spine: what the NICs below could send, divided by this.
  double oversubscription = 1;
  // Latency of one hop between network switches.
  double switch_us = 0.3;
};

// Ids get the host's number in front ("h1.g0") unless there is one host only and no network is
// needed. A host that is itself a cluster (an NVL72 rack) keeps its hosts apart. NVSwitches of one
// fabric (fact "fabric", as NVML reports it) become one node.
Machine join(const std::vector<Machine>& hosts, const Fabric& network = {});

// The same machine N times.
Machine replicate(const Machine& host, int count, const Fabric& network = {});

}  // namespace weft
