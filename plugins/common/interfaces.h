// The network interfaces of this machine that connections may use.
#pragma once

#include <string>
#include <vector>

#include "src/base/config.h"
#include "src/transport/address.h"

namespace weft::net_common {

struct Interface {
  std::string name;      // "eth0"
  std::string pci_path;  // in /sys; empty: no PCI device behind it
  int speed_mbps = 10000;
  bool loopback = false;
  std::vector<Address> addresses;  // IPv4 first, port 0
};

// Interfaces that are up and pass NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY. Without
// NCCL_SOCKET_IFNAME loopback and virtual ones are left out while there are others; the fastest is
// first. Never empty.
std::vector<Interface> find_interfaces(const Config& config);

// What a listener at interface `first` tells its peers: its own addresses first, then those of the
// others, for peers that the first ones do not lead to.
std::vector<Address> addresses_from(const std::vector<Interface>& interfaces, size_t first,
                                    uint16_t port, size_t most);

}  // namespace weft::net_common
