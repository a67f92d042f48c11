// The checks of `weft doctor`: what keeps this machine from full speed, what it costs, and how to
// fix it. Nothing throws; a finding says what cannot be read.
#pragma once

#include <string>
#include <vector>

#include "src/topology/sources/discover.h"

namespace weft {

enum class Verdict : uint8_t { kGood, kUnknown, kAdvice, kTrouble };
std::string_view name_of(Verdict verdict);

struct Finding {
  Verdict verdict = Verdict::kGood;
  std::string what;  // what was checked, and the result
  std::string cost;  // the price in speed; empty when good
  std::string fix;   // what to do; empty when good
};

std::vector<Finding> examine(const Machine& machine, const Discovery& how = {});

}  // namespace weft
