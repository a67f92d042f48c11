// The subsystems of a Machine, one inside the other: GPU, PCIe switch, socket, host, rack, cluster.
// Large clusters are planned level by level along this tree.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

enum class Level : uint8_t { kGpu, kSwitch, kSocket, kHost, kRack, kCluster };
std::string_view name_of(Level level);

struct Subsystem {
  Level level = Level::kGpu;
  int node = -1;           // the GPU, switch, CPU or network switch it is named after; -1: none
  int host = -1;           // for levels up to the host
  std::vector<int> gpus;   // nodes, all of them below this point
  double uplink_gbps = 0;  // what leaves it towards its parent, all links together
  std::vector<Subsystem> children;
};

// Levels with a single child of the same GPUs are kept only where they mean something (a host with
// one socket is a host). A machine without GPUs gives an empty subsystem.
Subsystem hierarchy(const Machine& machine);

}  // namespace weft
