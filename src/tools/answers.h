// Input and output that several `weft` commands share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "src/schedule/collective.h"
#include "src/simulator/simulator.h"

namespace weft {

// The collective of --coll; nothing if the option was not given. Its validator has checked it.
std::optional<CollectiveKind> collective_named(const std::string& text);

// nccl-tests' factor from algbw to busbw.
double busbw_factor(const Collective& collective);

// Rounds to twelve digits, which hides floating point noise. JSON has no infinity: null.
nlohmann::ordered_json number(double value);

// "12.3 us", "1.20 ms"
std::string duration(double us);

}  // namespace weft
