// The plans of a communicator in the form of NCCL's graphs (NCCL_GRAPH_DUMP_FILE).
#pragma once

#include <string>
#include <vector>

#include "src/planner/plan_chooser.h"

namespace weft {

// An element for every collective and range of sizes that has a plan of its own. A plan whose ranks
// form rings has NCCL's channels, with the ranks in the order of the ring. Other plans list who
// sends to whom. `gpus`: the bus id of every rank's GPU; empty: it
// has none.
std::string graphs_to_xml(const PlanChooser& chooser, const std::vector<std::string>& gpus);

// The rings of a schedule, by channel; empty: it is not made of rings.
std::vector<std::vector<int>> rings_of(const Schedule& schedule);

// Writes NCCL_GRAPH_DUMP_FILE if that is set and this rank is NCCL_GRAPH_DUMP_FILE_RANK. Readers
// see the old file or the new one. A failure is a warning in the log.
void dump_graphs(const Config& config, const PlanChooser& chooser, int rank,
                 const std::vector<std::string>& gpus) noexcept;

}  // namespace weft
