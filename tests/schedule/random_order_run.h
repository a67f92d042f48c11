// A second opinion on schedules, written without a look at verify(): runs them in random orders
// with all the freedom an executor has.
#pragma once

#include <cstdint>
#include <string>

#include "src/schedule/verify.h"

namespace weft::test {

struct SimulationOptions {
  int fifo_depth = 2;
  bool lend = false;  // messages of lendable steps are read in the sender's memory, as late as it
                      // may happen
  uint64_t seed = 1;  // of the order in which lanes run
};

// "" when every output ends as the collective asks (each contribution once, pre-multiplied once,
// averaged once), else the first thing that went wrong.
std::string simulate(const VerifiedSchedule& verified, const SimulationOptions& options);

}  // namespace weft::test
