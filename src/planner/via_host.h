// GPUs of one host whose data goes through pinned host memory, because they cannot reach each
// other's or because that is faster: how their communicators are planned. Every message is written
// over PCIe into a ring by a kernel and read from there by another, or by a CPU node that reduces.
// Such plans are compared by simulated time, on a machine without any other way. Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/planner/rates_file.h"
#include "src/simulator/cpu_nodes.h"
#include "src/simulator/simulator.h"
#include "src/topology/graph/machine.h"

namespace weft {

// The node of every rank's GPU, by PCI bus ids; with no ids ranks are dealt out to the GPUs in
// turn. Empty where the machine does not show one of them.
std::vector<int> gpus_of_ranks(const Machine& machine, std::span<const std::string> ids,
                               int nranks);

// Why these GPUs do not reach each other, as the machine tells; empty: they do, or it does not
// tell.
std::string no_peer_access(const Machine& machine, std::span<const int> gpus);

// Whether there are several, and data between any two of them crosses a CPU.
bool only_over_host_bridge(const Machine& machine, std::span<const int> gpus);

// The machine with a GPU for every rank, in order, each behind the links of the GPU that it has
// (several may share one). `via_host`: no way leads from one to another but through a CPU.
Machine machine_of_ranks(const Machine& machine, std::span<const int> gpus, bool via_host);

// What a single round of small messages takes (kMostOneRoundBytes), and every megabyte that a
// rank sends in it: two and four ranks that share an H200, all_reduce of 8 KiB in a graph 7.5
// and 11.5 us.
inline constexpr double kOneRoundUs = 5.5, kOneRoundUsMb = 245;

// What kernels and CPU nodes take for their steps, and how data is cut.
SimulationOptions via_host_simulation(const Rates& fifos, const Rates& cpus, double slice_bytes,
                                      int nranks);

// Of nodes that serve GPUs, on a host with so many cores.
CpuRates cpu_rates(const Rates& cpus, int cores);

}  // namespace weft
