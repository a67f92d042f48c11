// The machine as a flow problem in integers.
#pragma once

#include <cstdint>
#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

// Bandwidths are whole bytes per second. Every figure in GB/s with up to nine decimals is one, so
// all results are exact. `unit` is their greatest common divisor, so machines of round figures have
// small capacities.
struct Capacities {
  std::vector<int64_t> units;  // per link of the machine
  double unit_gbps = 1e-9;
};

// Throws Error(ncclInvalidArgument) for a bandwidth that is negative, not finite or beyond 1e6
// GB/s.
Capacities capacities(const Machine& machine);

// The machine with every link reversed. A reduction on a machine is a gather on its reverse.
Machine reversed(Machine machine);

}  // namespace weft
