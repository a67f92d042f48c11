// Inside logical_topology(): what both kinds of machine share.
#pragma once

#include <utility>
#include <vector>

#include "algorithms/synth/taccl/logical_topology.h"

namespace weft {

// Ranks by host, connected GPUs and senders, as the sketch has them; no links yet.
LogicalTopology ranks_of_sketch(const Sketch& sketch, std::vector<std::vector<int>> rank_at);

// Local pairs that may talk between hosts: (sender, receiver).
std::vector<std::pair<int, int>> connections(const Sketch& sketch, int gpus);

// Whether the sketch lets two GPUs of a host talk, and over how many switch planes (1 where it
// names no switches).
int planes(const Sketch& sketch, int from, int to);

void add_link(LogicalTopology& topology, LogicalLink link);

// Turns the sketch's offsets into permutations and proves that each maps every link onto one like
// it, shared things onto shared things, and senders onto senders.
void add_symmetries(const Sketch& sketch, LogicalTopology& topology);

}  // namespace weft
