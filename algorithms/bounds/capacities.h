// The machine as a flow problem in whole numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

// Bandwidths are taken as whole bytes per second, which every figure of up to nine decimals of a
// GB/s is; all that is computed from them is exact. `unit` is their greatest common divisor, so the
// capacities are small for machines of round figures.
struct Capacities {
  std::vector<int64_t> units;  // per link of the machine
  double unit_gbps = 1e-9;
};

// Throws Error(ncclInvalidArgument) for a bandwidth that is negative, not finite or beyond 1e6
// GB/s.
Capacities capacities(const Machine& machine);

// Every link turned round: what reduces on a machine is what gathers on its reverse.
Machine reversed(Machine machine);

}  // namespace weft
