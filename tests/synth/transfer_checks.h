// What holds for the transfers of every routing engine, whatever they are meant to be good at.
#pragma once

#include <string>
#include <vector>

#include "algorithms/synth/transfers.h"
#include "src/topology/machine.h"

namespace weft::test {

// Empty, or what is wrong: a link that does not lead on, a piece that is sent before it has come or
// that comes twice, a rank that misses one.
std::string transfer_error(const Machine& machine, const Routing& routing);

// size / time of the busiest link: what no schedule of these transfers can exceed, in GB/s.
double load_algbw(const Machine& machine, const Routing& routing);

// Machines that are not as they were built.
Machine without_link(Machine machine, int link);  // both directions
Machine without_gpu(Machine machine, int rank);
Machine with_half_nic(Machine machine, const std::string& nic);

}  // namespace weft::test
