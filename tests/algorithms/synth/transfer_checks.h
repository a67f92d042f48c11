// What holds for the transfers of every routing engine, whatever they are meant to be good at.
#pragma once

#include <string>
#include <vector>

#include "algorithms/synth/routing/transfers.h"
#include "src/topology/graph/machine.h"

namespace weft::test {

// Empty, or what is wrong: a link that does not lead on, a piece that is sent before it has come or
// that comes twice, a rank that misses one.
std::string transfer_error(const Machine& machine, const Routing& routing);

// size / time of the busiest link: what no schedule of these transfers can exceed, in GB/s.
double load_algbw(const Machine& machine, const Routing& routing);

}  // namespace weft::test
