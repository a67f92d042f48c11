// The network interfaces of this machine that connections may use.
#pragma once

#include <string>
#include <vector>

#include "src/base/config.h"
#include "src/transport/address.h"

namespace weft::net_common {

struct Interface {
  std::string name;      // "eth0"
  std::string pci_path;  // in /sys; empty: not a PCI device
  int speed_mbps = 10000;
  bool loopback = false;
  std::vector<Address> addresses;  // IPv4 first, port 0
};

// Interfaces that are up and pass NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY, fastest first. Without
// NCCL_SOCKET_IFNAME, loopback and virtual interfaces are left out if there are others. Never
// empty: throws Error if NCCL_SOCKET_IFNAME names none.
std::vector<Interface> find_interfaces(const Config& config);

// The addresses that a listener at interface `first` offers. Its own come first, then those of
// other interfaces, for peers that cannot reach the first ones.
std::vector<Address> addresses_from(const std::vector<Interface>& interfaces, size_t first,
                                    uint16_t port, size_t most);

}  // namespace weft::net_common
