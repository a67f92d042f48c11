// Discovers the machine that this process runs on. Nothing here throws or fails. If something
// cannot be read, an assumption replaces it and a note of the machine says so. Any thread may call;
// nothing is cached.
#pragma once

#include <string>

#include "src/topology/sources/host.h"

namespace weft {

// How a note of a machine ends that /sys alone describes, because hwloc does not work.
inline constexpr const char* kWithoutHwloc = ": /sys is used instead";

struct Discovery {
  // Asks hwloc for the PCI tree: hwloc_view() of hwloc_view.h, or nullptr for /sys alone.
  std::string (*hwloc)(std::string& why_not) noexcept = nullptr;
  std::string nvml = "libnvidia-ml.so.1";  // for dlopen
  std::string root;                        // prefix of /sys, /proc and /dev (tests)
  std::string hwloc_xml;                   // replaces the call of hwloc (tests)
  bool hidden_gpus = false;                // also those that CUDA_VISIBLE_DEVICES hides
};

// PCI tree and NUMA nodes from hwloc (from /sys without it), GPUs and NVLink from NVML, NICs from
// /sys. Leaves out devices that CUDA_VISIBLE_DEVICES and containers hide. Ranks of one host often
// see one GPU each that way. So init asks for the hidden ones too.
Host discover_host(const Discovery& how = {}) noexcept;

// The machine for init and tools. If NCCL_TOPO_FILE (or NVIDIA's
// /var/run/nvidia-topologyd/virtualTopology.xml) describes one, discovery completes it. Otherwise
// it is discovery alone. A file that cannot be read becomes a note.
Machine this_machine(const Discovery& how = {}) noexcept;

// Writes the machine to NCCL_TOPO_DUMP_FILE if that is set and this rank is
// NCCL_TOPO_DUMP_FILE_RANK. A failure is a warning in the log.
void dump_machine(const Machine& machine, int rank) noexcept;

// NCCL's rule for files. Discovered GPUs and NICs go into the file's tree by bus id, or are added.
// Devices in the file that do not exist here are left out, with a note.
Host complete(Host file, const Host& live);

}  // namespace weft
