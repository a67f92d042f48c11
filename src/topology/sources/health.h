// What keeps this machine from full speed, what each thing costs, and how to mend it: the checks of
// `weft doctor`. Nothing throws; what cannot be read is said.
#pragma once

#include <string>
#include <vector>

#include "src/topology/sources/discover.h"

namespace weft {

enum class Verdict : uint8_t { kGood, kUnknown, kAdvice, kTrouble };
std::string_view name_of(Verdict verdict);

struct Finding {
  Verdict verdict = Verdict::kGood;
  std::string what;  // what was looked at, and seen
  std::string cost;  // what that costs; empty when good
  std::string fix;   // what to do; empty when good
};

std::vector<Finding> examine(const Machine& machine, const Discovery& how = {});

}  // namespace weft
