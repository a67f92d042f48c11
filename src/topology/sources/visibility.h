// The GPUs that this process may use: CUDA_VISIBLE_DEVICES, and the devices of a container.
#pragma once

#include <string>

#include "src/topology/sources/host.h"
#include "src/topology/sources/sysfs.h"

namespace weft {

// Leaves out GPUs without a usable /dev/nvidiaN, with a note. (cgroups hide them.)
void apply_device_files(Host& host, const Sysfs& sysfs);

// Leaves out GPUs that `visible` does not name, with a note, and sorts the rest in its order.
// `visible` is the value of CUDA_VISIBLE_DEVICES: indices or UUIDs, up to the first unknown one.
// `ordered_by_bus` is CUDA_DEVICE_ORDER=PCI_BUS_ID.
void apply_visible_devices(Host& host, const std::string& visible, bool ordered_by_bus);

}  // namespace weft
