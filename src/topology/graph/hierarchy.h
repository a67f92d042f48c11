// The subsystems of a Machine, nested: GPU, PCIe switch, socket, host, rack, cluster. Large
// clusters are planned level by level along this tree.
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
  int node = -1;           // the GPU, switch, CPU or network switch that names it; -1: none
  int host = -1;           // for levels up to the host
  std::vector<int> gpus;   // nodes, all GPUs below this point
  double uplink_gbps = 0;  // bandwidth to its parent, all links together
  std::vector<Subsystem> children;
};

// A level whose single child has the same GPUs is left out unless it means something: a host with
// one socket is a host. A machine without GPUs gives an empty subsystem.
Subsystem hierarchy(const Machine& machine);

}  // namespace weft
