// A table of NCCL's network plugin ABI, of any version, as a Network.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/transport/net_abi/extension.h"
#include "src/transport/net_abi/v12.h"
#include "src/transport/network.h"

namespace weft {

// A loaded plugin, before a communicator uses it. `open` initializes it (v11 and later: for this
// communicator). It throws Error with the reason if that fails or there is no device.
struct NetTable {
  std::string name;
  int version = 0;
  std::function<std::shared_ptr<Network>(uint64_t comm_id, int traffic_class)> open;
};

// The newest table in a library, up to version `newest`; an empty name: none. The library stays
// open while the table is in use.
NetTable find_table(const std::shared_ptr<void>& library, int newest = net_abi::NetV12::kVersion);

// A table that is compiled in.
NetTable built_in_table(const net_abi::NetV12& net, const net_abi::ExtensionV4& extension);

// The logger that plugins get. A thread's WARN lines are kept for Network::reason().
void plugin_log(net_abi::LogLevel level, unsigned long flags, const char* file, int line,
                const char* format, ...);

}  // namespace weft
