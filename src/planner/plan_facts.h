// What a plan uses of a machine: ports, NICs, and the bytes that leave hosts. For tools, and to
// decide which NIC a rank uses. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "src/schedule/schedule.h"
#include "src/topology/graph/machine.h"

namespace weft {

// Whether all GPUs can reach into each other's memory: on one host, over NVLink or below one PCIe
// switch. Other pairs exchange messages through host memory or the network.
bool all_direct(const Machine& machine);

// A FIFO between hosts, and the NICs at its ends.
struct NicUse {
  int from = 0, to = 0, channel = 0;
  std::string sends, receives;
};

struct PlanFacts {
  int peer_memory = 0, host_memory = 0, network = 0;  // FIFOs, or pairs that load and store
  std::vector<std::string> nics;                      // used to send, sorted
  std::vector<NicUse> nic_uses;
  double network_blocks = 0;  // sent between hosts, in blocks of the collective
};

// The routes are those that the schedule names, and the widest ones otherwise. Throws Error if the
// machine has no route for a message.
PlanFacts plan_facts(const Machine& machine, const Schedule& schedule);

// The NICs that each rank should use, the first one first: the nearest to its GPU, spread over the
// GPUs that share them. Names; empty if there is none.
std::vector<std::vector<std::string>> nics_of_ranks(const Machine& machine);

}  // namespace weft
