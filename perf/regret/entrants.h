// The plans that compete for a collective, and their times.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/schedule/collective.h"

namespace weft::perf {

// A plan that competes: the library's own choice (no name), or a forced plan.
struct Entrant {
  std::string plan;
  std::map<uint64_t, std::vector<double>> times;  // by size, in the order of repetitions
  std::map<uint64_t, std::string> chosen;         // by size, if the library chooses
  std::string twins;                              // other names of the same schedule
};

// The library's choice comes first. Generators that make the same schedule are one plan.
std::vector<Entrant> entrants_for(CollectiveKind kind, int ranks);

}  // namespace weft::perf
