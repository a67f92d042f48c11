// A Host from /sys: the PCI tree with link speeds and NUMA nodes (where hwloc is not at hand), and
// NICs with their ports, rates and states. Nothing throws.
#pragma once

#include "src/topology/sources/host.h"
#include "src/topology/sources/sysfs.h"

namespace weft {

// PCI devices and NUMA nodes; GPUs are NVIDIA's and AMD's accelerators.
Host host_from_sysfs(const Sysfs& sysfs);

// Link speeds and widths the devices are capable of, instead of what they run at while idle.
void read_link_speeds(Host& host, const Sysfs& sysfs);

// Replaces the NICs by those /sys/class/infiniband and /sys/class/net have; virtual ones, and ports
// without a link, are left out with a note.
void read_nics(Host& host, const Sysfs& sysfs);

// Whether NICs may read and write GPU memory: "nvidia_peermem", "dmabuf" or "".
std::string gpudirect(const Sysfs& sysfs);

}  // namespace weft
