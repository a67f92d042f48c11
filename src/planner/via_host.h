// Plans for GPUs of one host whose data goes through pinned host memory, because they have no peer
// access or because it is faster. A kernel writes every message over PCIe into a host FIFO. Another
// kernel reads it, or a CPU node that reduces. These plans are compared by simulated time, on a
// machine without other paths. Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/planner/rates_file.h"
#include "src/simulator/cpu_nodes.h"
#include "src/simulator/simulator.h"
#include "src/topology/graph/machine.h"

namespace weft {

// Why these GPUs have no peer access to each other. Empty: they have it, or the machine does not
// say.
std::string no_peer_access(const Machine& machine, std::span<const int> gpus);

// Whether the GPUs of two ranks have a link, or a path of switches, that no other GPU and no CPU is
// part of.
bool has_direct_path(const Machine& machine, int rank, int peer);

// Whether there are several GPUs, and data between any two of them crosses a CPU.
bool only_over_host_bridge(const Machine& machine, std::span<const int> gpus);

// The machine with one GPU node per rank, in order. Each is behind the links of the rank's GPU;
// several ranks may share a GPU. `via_host`: all paths between them go through a CPU.
Machine machine_of_ranks(const Machine& machine, std::span<const int> gpus, bool via_host);

// Time of a single round of small messages (kMostOneRoundBytes), and per megabyte that a rank sends
// in it. Measured: two and four ranks that share an H200 take 7.5 and 11.5 us for an all_reduce of
// 8 KiB in a graph.
inline constexpr double kOneRoundUs = 5.5, kOneRoundUsMb = 245;

// The costs of steps for kernels and CPU nodes, and the slice size.
SimulationOptions via_host_simulation(const Rates& fifos, const Rates& cpus, double slice_bytes,
                                      int nranks);

// The rates of CPU nodes that serve GPUs, on a host with `cores` cores.
CpuRates cpu_rates(const Rates& cpus, int cores);

}  // namespace weft
