// Inside logical_topology(): shared by both kinds of machine.
#pragma once

#include <utility>
#include <vector>

#include "algorithms/synth/taccl/logical_topology.h"

namespace weft {

// Ranks by host, connected GPUs and senders, from the sketch; no links yet.
LogicalTopology ranks_of_sketch(const Sketch& sketch, std::vector<std::vector<int>> rank_at);

// Pairs of local GPUs that may talk between hosts: (sender, receiver).
std::vector<std::pair<int, int>> connections(const Sketch& sketch, int gpus);

// The number of switch planes over which the sketch lets two GPUs of a host talk; 0: none. 1 if the
// sketch names no switches.
int planes(const Sketch& sketch, int from, int to);

void add_link(LogicalTopology& topology, LogicalLink link);

// Turns the sketch's offsets into permutations. Proves that each maps every link to an equal link,
// shared resources to shared resources, and senders to senders.
void add_symmetries(const Sketch& sketch, LogicalTopology& topology);

}  // namespace weft
