// Rings and chains that follow the machine, as schedules for a table. Pure functions.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "src/planner/imported_schedules.h"
#include "src/topology/graph/machine.h"

namespace weft {

// The ranks in the order of a ring: host by host, and neighbours next to each other, so that its
// slowest link is as fast as possible. Never over another GPU where there is a way without.
std::vector<int> ring_order(const Machine& machine);

// Rings in both directions, and a chain for all_reduce, along that order. Proved. Proofs for more
// than 32 ranks take a second. Hierarchical plans are faster then, so init makes these up to
// 128 ranks only if the user asks for algorithms (NCCL_ALGO). Else, and beyond: empty.
std::vector<std::shared_ptr<const ImportedSchedule>> ordered_schedules(const Machine& machine,
                                                                       bool asked_for = false);

inline constexpr size_t kMostOrderedSchedules = 6;
// The collective of such a schedule of that name; nullopt: there is none for `wanted`.
std::optional<CollectiveKind> ordered_kind(std::string_view name, CollectiveKind wanted);

}  // namespace weft
