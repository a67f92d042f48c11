// Questions about a Machine: how two devices reach each other, which NIC a GPU should use. All
// functions only read; any thread may call them.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

// From near to far; the names that nvidia-smi and NCCL give are NV#, NV# (relay), PIX/PXB, PHB,
// SYS, NET.
enum class PathClass : uint8_t {
  kSelf,
  kNvlink,       // NVLink or xGMI, directly or through NVSwitch
  kNvlinkRelay,  // NVLink or xGMI through other GPUs
  kPcieSwitch,   // without reaching a CPU
  kHostBridge,   // through one CPU's root complex, or its memory
  kSockets,      // across sockets
  kNetwork,
  kNone,
};
std::string_view name_of(PathClass path_class);

struct Path {
  PathClass path_class = PathClass::kNone;
  std::vector<int> links;  // indices
  double gbps = 0;         // of the narrowest link
  double us = 0;           // sum
};

// The widest path of each class that exists (the quickest of equally wide ones), near classes
// first; a class is listed only if no nearer one has the same links.
std::vector<Path> paths(const Machine& machine, int from, int to);

// The path data should take: the widest, of those within 5% the nearest, and a relay only where
// there is no direct NVLink.
Path best_path(const Machine& machine, int from, int to);

// The same for many pairs of one machine, without preparing the graph each time. Any number of
// threads may ask one finder.
class PathFinder {
 public:
  explicit PathFinder(const Machine& machine);
  ~PathFinder();
  std::vector<Path> paths(int from, int to) const;
  Path best(int from, int to) const;

 private:
  std::unique_ptr<const class PathSearch> search_;
};

// How a GPU gets to the network.
struct NicChoice {
  int gpu = -1;
  int nic = -1;  // -1: no NIC can be reached
  Path direct;   // over PCIe, GPU to NIC
  // NICs just as near that are nobody's first choice (ports of one card): to be used as well.
  std::vector<int> more;
  // Through another GPU's NVLink and that GPU's PCIe link, where that is wider than the direct way;
  // relay is that GPU, or -1.
  int relay = -1;
  Path relayed;
};

// For every GPU of the machine, in order: the nearest NIC of its host; among equally near ones
// those with fewest GPUs first, so that GPUs spread over them.
std::vector<NicChoice> nic_affinity(const Machine& machine);

}  // namespace weft
