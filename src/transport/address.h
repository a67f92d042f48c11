// Socket addresses as plain bytes, and the choice of this machine's interfaces to offer to peers.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/config.h"

namespace weft {

// 24 bytes on the wire and inside ncclUniqueId. family: 4 or 6; 0: none.
struct Address {
  uint8_t family = 0;
  uint8_t unused = 0;
  uint16_t port = 0;
  uint32_t scope = 0;
  uint8_t bytes[16] = {};

  socklen_t to_sockaddr(sockaddr_storage& out) const;
  static Address from_sockaddr(const sockaddr* in);
  static Address loopback(uint16_t port);
  bool operator==(const Address&) const = default;
};
static_assert(sizeof(Address) == 24);

std::string describe(const Address& address);

// "host:port" or "[ipv6]:port", resolved. Throws Error(ncclInvalidArgument).
Address parse_address(const std::string& text);

// Whether an interface name passes NCCL_SOCKET_IFNAME, a comma-separated list of prefixes. "^" in
// front inverts the list. "=" in front (after any "^") compares whole names. An empty list passes
// everything.
bool interface_matches(std::string_view list, std::string_view name);

// Interfaces that exist only inside this machine: bridges and veth pairs of containers and VMs.
bool is_virtual_interface(std::string_view name);

// The addresses that peers should try, best first, all with this port. Never empty: the last resort
// is loopback. Throws Error(ncclInvalidUsage) if NCCL_SOCKET_IFNAME names no interface.
std::vector<Address> local_addresses(const Config& config, uint16_t port);

// Equal for processes that share this host's memory and loopback. NCCL_HOSTID replaces it.
uint64_t host_identity(const Config& config);
// Equal for processes that share this machine's cores, in any container.
uint64_t machine_identity();

}  // namespace weft
