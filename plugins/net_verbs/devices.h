// RDMA devices as NCCL counts them: one per usable port, and merged devices. Found once, kept as
// long as the process. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "plugins/common/abi_tables.h"
#include "plugins/net_verbs/hca.h"

namespace weft::net_verbs {

struct Device {
  std::vector<Port> rails;
  std::vector<int> members;
  std::string name;
  int speed_mbps = 0;
};

// The environment at the first use of the plugin.
const Config& config();

// nullptr: no such device; the error has been reported.
const Device* find_device(int dev);

// The rails of a connection on this device. Those of other devices are spares if it has only one.
std::vector<Port> rails_for(const Device& device);

// The plugin's functions of these names, see abi_tables.h.
ncclResult_t start(net_abi::Logger log);
int device_count();
ncclResult_t facts(int dev, DeviceFacts& facts);
ncclResult_t merge(const int* devs, int count, int* dev);

}  // namespace weft::net_verbs
