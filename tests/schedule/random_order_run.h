// A second check of schedules, written independently of verify(). It runs them in random orders
// with all the freedom of an executor.
#pragma once

#include <cstdint>
#include <string>

#include "src/schedule/verify.h"

namespace weft::test {

struct SimulationOptions {
  int fifo_depth = 2;
  bool lend = false;  // read messages of lendable steps in the sender's memory, as late as allowed
  uint64_t seed = 1;  // for the order in which lanes run
};

// "" when every output is right (each contribution once, pre-multiplied once, averaged once), else
// the first error.
std::string simulate(const VerifiedSchedule& verified, const SimulationOptions& options);

}  // namespace weft::test
