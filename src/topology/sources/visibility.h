// Which GPUs this process may use: CUDA_VISIBLE_DEVICES, and the devices a container was given.
#pragma once

#include <string>

#include "src/topology/sources/host.h"
#include "src/topology/sources/sysfs.h"

namespace weft {

// Leaves out, with a note, GPUs without a usable /dev/nvidiaN (a cgroup's doing).
void apply_device_files(Host& host, const Sysfs& sysfs);

// Leaves out, with a note, GPUs that `visible` (the value of CUDA_VISIBLE_DEVICES: indices or
// UUIDs, to the first that is unknown) does not name, and orders the rest as it does.
// `ordered_by_bus` is CUDA_DEVICE_ORDER=PCI_BUS_ID.
void apply_visible_devices(Host& host, const std::string& visible, bool ordered_by_bus);

}  // namespace weft
