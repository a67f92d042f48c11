// Properties that the transfers of every routing engine have.
#pragma once

#include <string>
#include <vector>

#include "algorithms/synth/routing/transfers.h"
#include "src/topology/graph/machine.h"

namespace weft::test {

// Empty, or the error: a path with a gap, a piece that is sent before it has arrived or that
// arrives twice, a rank that misses a piece.
std::string transfer_error(const Machine& machine, const Routing& routing);

// Size / time of the busiest link, in GB/s. No schedule of these transfers exceeds it.
double load_algbw(const Machine& machine, const Routing& routing);

}  // namespace weft::test
