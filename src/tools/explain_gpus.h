// The part of `weft explain` for machines on which every rank has a GPU: what would run, on which
// ports and NICs, and how far from the bound. Prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "src/planner/plan_chooser.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct GpuExplanation {
  const PlanChooser& chooser;
  const Machine& machine;  // rank r is its GPU number r
  int blocks = 0;          // thread blocks of a rank; 0: host mode emulates that machine
};

// The plan of a call of this size. Its name is in the first line.
nlohmann::ordered_json explain_call(const GpuExplanation& on, CollectiveKind kind, uint64_t bytes);
void print_call(const GpuExplanation& on, CollectiveKind kind, uint64_t bytes);
// The plans of a collective at a few sizes, a line each.
void print_sizes(const GpuExplanation& on, CollectiveKind kind);
// What holds for all calls, after the lines of print_sizes().
void print_notes(const GpuExplanation& on);

}  // namespace weft
