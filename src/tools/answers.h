// What several commands of `weft` read and print alike.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "src/planner/simulator.h"
#include "src/schedule/collective.h"

namespace weft {

// "64K", "1M", "1.5G", "4096": powers of 1024. Throws Error(ncclInvalidArgument).
double size_named(const std::string& text);

// Throws Error(ncclInvalidArgument) with the names there are.
CollectiveKind collective_named(const std::string& text);

// nccl-tests' factor from algbw to busbw.
double busbw_factor(const Collective& collective);

// JSON has no infinity: null.
nlohmann::ordered_json number(double value);

// "12.3 us", "1.20 ms"
std::string duration(double us);

}  // namespace weft
