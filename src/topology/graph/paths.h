// Queries on a Machine: how two devices reach each other, and which NIC a GPU should use. All
// functions only read; any thread may call them.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

// From near to far. nvidia-smi and NCCL call them NV#, NV# (relay), PIX/PXB, PHB, SYS, NET.
enum class PathClass : uint8_t {
  kSelf,
  kNvlink,       // NVLink or xGMI, directly or through NVSwitch
  kNvlinkRelay,  // NVLink or xGMI through other GPUs
  kPcieSwitch,   // without reaching a CPU
  kHostBridge,   // through one CPU's root complex or memory
  kSockets,      // across sockets
  kNetwork,
  kNone,
};
std::string_view name_of(PathClass path_class);

struct Path {
  PathClass path_class = PathClass::kNone;
  std::vector<int> links;  // indices
  double gbps = 0;         // the least of its links
  double us = 0;           // sum
};

// Of each class that exists, the path of highest bandwidth; of equals, the one of least latency.
// Near classes come first. A class is left out if a nearer class has the same links.
std::vector<Path> paths(const Machine& machine, int from, int to);

// The path that data should take: the highest bandwidth; within 5% of it, the nearest class. A
// relay counts only if there is no direct NVLink.
Path best_path(const Machine& machine, int from, int to);

// paths() and best_path() for many pairs of one machine; prepares the graph once. Any number of
// threads may call one finder.
class PathFinder {
 public:
  explicit PathFinder(const Machine& machine);
  ~PathFinder();
  std::vector<Path> paths(int from, int to) const;
  Path best(int from, int to) const;

 private:
  std::unique_ptr<const class PathSearch> search_;
};

// How a GPU reaches the network.
struct NicChoice {
  int gpu = -1;
  int nic = -1;  // -1: the GPU reaches no NIC
  Path direct;   // over PCIe, GPU to NIC
  // More NICs for this GPU: equally near, and no GPU's first choice (ports of one card).
  std::vector<int> more;
  // The path through the NVLink and PCIe link of another GPU (`relay`), if that is better than the
  // direct path. Otherwise relay is -1.
  int relay = -1;
  Path relayed;
};

// For every GPU, in order: the nearest NIC of its host. Among equally near NICs, the one with the
// fewest GPUs, so that GPUs spread over them.
std::vector<NicChoice> nic_affinity(const Machine& machine);

}  // namespace weft
