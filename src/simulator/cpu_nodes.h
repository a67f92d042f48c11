// Schedules with CPU nodes on machines: where the nodes are, so that simulations know which links
// lead to them, and for which machines such plans are worth a thought. On boxes whose GPUs talk
// over PCIe alone every GPU writes its data into host memory once and reads the result once,
// instead of passing partial sums through the host bridge. Pure functions.
#pragma once

#include "src/schedule/schedule.h"
#include "src/topology/graph/machine.h"

namespace weft {

// What the CPUs can do that have the nodes. Defaults are those of a core of any server, and of as
// many cores as a node has lanes.
struct CpuRates {
  double reduce_us_mb = 70, copy_us_mb = 100;  // of a core: see Rates
  int cores = 64;                              // that the nodes share
  double notice_us = 5;  // until a node's thread has a core and sees the first message of a call
};

// Whether CPUs that reduce could be of use: one host, as many CPUs as nodes at least, no NVLink or
// the like.
bool cpus_could_help(const Machine& machine, int cpu_nodes);

// The machine with a node for the memory of every CPU node, as the ranks after the schedule's; GPUs
// that have no rank are left without links. A CPU node is on the CPU that most of the ranks that
// send to it are nearest to. Without CPU nodes in the schedule, the machine as it is. Throws Error
// where a GPU reaches no CPU.
Machine with_cpu_nodes(const Machine& machine, const Schedule& schedule,
                       const CpuRates& rates = {});

// Throws Error unless the machine has the schedule's CPU nodes in their places.
void check_cpu_nodes(const Machine& machine, const Schedule& schedule);

}  // namespace weft
