// Looks at the machine this process runs on. Nothing here throws or fails: what cannot be read is
// replaced by an assumption that the machine's notes state. Any thread may call; nothing is cached.
#pragma once

#include <string>

#include "src/topology/sources/host.h"

namespace weft {

struct Discovery {
  // Asks hwloc for the PCI tree: hwloc_view() of hwloc_view.h, or nullptr for /sys alone. A
  // pointer, so that what does not want libhwloc does not link it.
  std::string (*hwloc)(std::string& why_not) noexcept = nullptr;
  std::string nvml = "libnvidia-ml.so.1";  // for dlopen
  std::string root;                        // stands before /sys, /proc and /dev (tests)
  std::string hwloc_xml;                   // instead of asking hwloc (tests)
};

// PCI tree and NUMA nodes by hwloc (by /sys where it is not at hand), GPUs and NVLink by NVML, NICs
// by /sys, without what CUDA_VISIBLE_DEVICES and containers hide.
Host discover_host(const Discovery& how = {}) noexcept;

// The machine as init and tools want it: the one NCCL_TOPO_FILE (or NVIDIA's
// /var/run/nvidia-topologyd/virtualTopology.xml) describes, completed by what is found here; or
// what is found here alone. A file that cannot be read is a note.
Machine this_machine(const Discovery& how = {}) noexcept;

// Writes the machine to NCCL_TOPO_DUMP_FILE if that is set and this rank is
// NCCL_TOPO_DUMP_FILE_RANK. A failure is a warning in the log.
void dump_machine(const Machine& machine, int rank) noexcept;

// NCCL's rule for files: GPUs and NICs that are here are filled into the file's tree by their bus
// ids, or added; what the file names but is not here is left out, with a note.
Host complete(Host file, const Host& live);

}  // namespace weft
