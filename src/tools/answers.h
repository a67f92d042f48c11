// What several commands of `weft` read and print alike.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "src/schedule/collective.h"
#include "src/simulator/simulator.h"

namespace weft {

// What --coll says; nothing where it was not given. The option's validator has seen it.
std::optional<CollectiveKind> collective_named(const std::string& text);

// nccl-tests' factor from algbw to busbw.
double busbw_factor(const Collective& collective);

// To twelve digits, which hides what floating point did to round figures. JSON has no infinity:
// null.
nlohmann::ordered_json number(double value);

// "12.3 us", "1.20 ms"
std::string duration(double us);

}  // namespace weft
