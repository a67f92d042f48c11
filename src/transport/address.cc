// Interface selection and address formatting.
#include "src/transport/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <memory>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/siphash.h"

namespace weft {

socklen_t Address::to_sockaddr(sockaddr_storage& out) const {
  std::memset(&out, 0, sizeof out);
  if (family == 4) {
    auto& in = reinterpret_cast<sockaddr_in&>(out);
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&in.sin_addr, bytes, 4);
    return sizeof in;
  }
  auto& in6 = reinterpret_cast<sockaddr_in6&>(out);
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(port);
  in6.sin6_scope_id = scope;
  std::memcpy(&in6.sin6_addr, bytes, 16);
  return sizeof in6;
}

Address Address::from_sockaddr(const sockaddr* in) {
  Address address;
  if (in->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(in);
    address.family = 4;
    address.port = ntohs(v4->sin_port);
    std::memcpy(address.bytes, &v4->sin_addr, 4);
  } else if (in->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(in);
    address.port = ntohs(v6->sin6_port);
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {  // IPv4 through a socket of both families
      address.family = 4;
      std::memcpy(address.bytes, v6->sin6_addr.s6_addr + 12, 4);
      return address;
    }
    address.family = 6;
    address.scope = v6->sin6_scope_id;
    std::memcpy(address.bytes, &v6->sin6_addr, 16);
  }
  return address;
}

Address Address::loopback(uint16_t port) {
  Address address;
  address.family = 4;
  address.port = port;
  address.bytes[0] = 127;
  address.bytes[3] = 1;
  return address;
}

std::string describe(const Address& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(address.family == 4 ? AF_INET : AF_INET6, address.bytes, text.data(), text.size());
  return address.family == 4 ? fmt::format("{}:{}", text.data(), address.port)
                             : fmt::format("[{}]:{}", text.data(), address.port);
}

Address parse_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size())
    fail(ncclInvalidArgument, "'{}' is not host:port", text);
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int error = getaddrinfo(host.c_str(), text.c_str() + colon + 1, &hints, &list);
  if (error != 0)
    fail(ncclInvalidArgument, "'{}' cannot be resolved: {}", text, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  return Address::from_sockaddr(list->ai_addr);
}

bool interface_matches(std::string_view list, std::string_view name) {
  if (list.empty()) return true;
  const bool invert = list.front() == '^';
  if (invert) list.remove_prefix(1);
  const bool exact = !list.empty() && list.front() == '=';
  if (exact) list.remove_prefix(1);
  bool found = false;
  while (!list.empty()) {
    const std::string_view word = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), word.size() + 1));
    if (word.empty()) continue;
    found = found || (exact ? name == word : name.substr(0, word.size()) == word);
  }
  return found != invert;
}

bool is_virtual_interface(std::string_view name) {
  constexpr std::array<std::string_view, 9> kPrefixes = {"docker", "veth",    "virbr", "br-", "cni",
                                                         "cali",   "flannel", "tun",   "tap"};
  for (const auto prefix : kPrefixes)
    if (name.substr(0, prefix.size()) == prefix) return true;
  return false;
}

std::vector<Address> local_addresses(const Config& config, uint16_t port) {
  ifaddrs* list = nullptr;
  std::vector<Address> addresses;
  if (getifaddrs(&list) != 0) return {Address::loopback(port)};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (config.socket_family == "AF_INET" && family != AF_INET) continue;
    if (config.socket_family == "AF_INET6" && family != AF_INET6) continue;
    const std::string_view name = i->ifa_name;
    if (config.socket_ifname.empty()) {
      if ((i->ifa_flags & IFF_LOOPBACK) != 0) continue;
      if (is_virtual_interface(name)) {
        WEFT_INFO(kNet, "interface {} left out: it is virtual (NCCL_SOCKET_IFNAME={} would use it)",
                  name, name);
        continue;
      }
    } else if (!interface_matches(config.socket_ifname, name)) {
      continue;
    }
    Address address = Address::from_sockaddr(i->ifa_addr);
    address.port = port;
    if (address.family == 4) {
      addresses.insert(addresses.begin(), address);  // IPv4 first
    } else {
      addresses.push_back(address);
    }
  }
  if (addresses.empty()) {
    if (!config.socket_ifname.empty())
      fail(ncclInvalidUsage, "NCCL_SOCKET_IFNAME={} names no interface that is up{}{}",
           config.socket_ifname, config.socket_family.empty() ? "" : " and has addresses of ",
           config.socket_family);
    addresses.push_back(Address::loopback(port));
  }
  return addresses;
}

uint64_t machine_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return siphash(Secret{}, boot.data(), boot.size());
}

uint64_t host_identity(const Config& config) {
  std::string text = config.host_id;
  if (text.empty()) {
    std::array<char, 256> name{};
    gethostname(name.data(), name.size() - 1);
    std::string boot;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
    struct stat net {};
    stat("/proc/self/ns/net", &net);
    text = fmt::format("{}/{}/{}", name.data(), boot, net.st_ino);
  }
  return siphash(Secret{}, text.data(), text.size());
}

}  // namespace weft
