// A second check of schedules, written independently of verify(). It runs them in random orders
// with all the freedom of an executor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/schedule/straight.h"
#include "src/schedule/verify.h"

namespace weft::test {

// Per rank, as straight_places() gives them.
using StraightLists = std::vector<std::vector<StraightPlace>>;

struct SimulationOptions {
  int fifo_depth = 2;
  bool lend = false;  // read messages of lendable steps in the sender's memory, as late as allowed
  uint64_t seed = 1;  // for the order in which lanes run
  const StraightLists* straight = nullptr;  // messages that senders write into receivers' memory
};

// "" when every output is right (each contribution once, pre-multiplied once, averaged once), else
// the first error.
std::string simulate(const VerifiedSchedule& verified, const SimulationOptions& options);

}  // namespace weft::test
