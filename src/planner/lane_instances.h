// A schedule as the lane kernel runs it: with several instances of every lane. Each has its share
// of every chunk and FIFOs of its own. For simulations.
#pragma once

#include <optional>

#include "src/schedule/schedule.h"

namespace weft {

// nullopt: a step moves chunks of several blocks, which instances would tear apart.
std::optional<Schedule> with_instances(const Schedule& schedule, int instances);

}  // namespace weft
