// A Host from /sys: the PCI tree with link speeds and NUMA nodes (if hwloc is missing), and NICs
// with ports, rates and states. Nothing throws.
#pragma once

#include "src/topology/sources/host.h"
#include "src/topology/sources/sysfs.h"

namespace weft {

// PCI devices and NUMA nodes. GPUs are the accelerators of NVIDIA and AMD.
Host host_from_sysfs(const Sysfs& sysfs);

// Sets the link speeds and widths that devices can reach, instead of those they idle at.
void read_link_speeds(Host& host, const Sysfs& sysfs);

// Replaces the NICs by those in /sys/class/infiniband and /sys/class/net. Leaves out virtual NICs
// and ports without a link, with a note.
void read_nics(Host& host, const Sysfs& sysfs);

// Whether NICs may read and write GPU memory: "nvidia_peermem", "dmabuf" or "".
std::string gpudirect(const Sysfs& sysfs);

}  // namespace weft
