// Adds a schedule's CPU nodes to a machine, so that the simulator knows which links lead to them.
// Also says on which machines CPU nodes are worth a try: boxes whose GPUs talk over PCIe alone.
// There every GPU writes its data into host memory once and reads the result once. Without CPU
// nodes partial sums pass through the host bridge. Pure functions.
#pragma once

#include "src/schedule/schedule.h"
#include "src/topology/graph/machine.h"

namespace weft {

// Speed of the CPUs that run CPU nodes. Defaults: a common server core, and as many cores as a node
// has lanes.
struct CpuRates {
  double reduce_us_mb = 70, copy_us_mb = 100;  // of one core: see Rates
  int cores = 64;                              // the CPU nodes share them
  double notice_us = 5;  // until a node's thread has a core and sees a call's first message
};

// Whether CPU nodes could help: one host, at least `cpu_nodes` CPUs, and no NVLink, xGMI or C2C.
bool cpus_could_help(const Machine& machine, int cpu_nodes);

// The machine plus one node for the memory of every CPU node. They are the ranks after the
// schedule's ranks. GPUs without a rank lose their links. A CPU node sits on the CPU that is
// nearest to most of the ranks that send to it. Returns the machine unchanged if the schedule has
// no CPU nodes. Throws Error if a GPU reaches no CPU.
Machine with_cpu_nodes(const Machine& machine, const Schedule& schedule,
                       const CpuRates& rates = {});

// Throws Error unless the machine has the schedule's CPU nodes as the ranks after its GPUs.
void check_cpu_nodes(const Machine& machine, const Schedule& schedule);

}  // namespace weft
