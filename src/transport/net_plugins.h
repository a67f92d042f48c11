// The choice of a communicator's network: NCCL's rules for finding plugins, then Weft's own
// plugins.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/base/config.h"
#include "src/transport/network.h"
#include "src/transport/plugin_network.h"

namespace weft {

struct NetRequest {
  std::string plugins;         // NCCL_NET_PLUGIN
  bool plugins_given = false;  // false: the default is libnccl-net.so
  std::string net_name;        // NCCL_NET, else config.netName; empty: any
  bool verbs = true;           // NCCL_IB_DISABLE turns it off
  uint64_t comm_id = 0;
  int traffic_class = net_abi::kUndefined;
};
// What a communicator's configuration asks of the network.
struct NetWish {
  std::string name;                         // empty: any
  int traffic_class = net_abi::kUndefined;  // for plugins that have quality of service
};

NetRequest net_request(const Config& config, const char* config_net_name);

// The file names that dlopen() gets for one entry of NCCL_NET_PLUGIN, in order. A name without '/'
// that is not lib*.so also means libnccl-net-NAME.so. `beside` is the folder of this library, which
// holds our own plugins. "STATIC_PLUGIN" gives an empty name: the process itself.
std::vector<std::string> plugin_files(const std::string& name, const std::string& beside);

// Tries the external plugins in order, then our verbs plugin if it is installed, then the built-in
// one. Returns the first that starts, has a device and has the wanted name. Logs why the others
// failed. Throws Error(ncclInvalidUsage) with all reasons if none is left. Thread-safe.
std::shared_ptr<Network> choose_network(const NetRequest& request, const NetTable& built_in);

}  // namespace weft
