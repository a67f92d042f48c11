// See interfaces.h.
#include "plugins/common/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "src/base/error.h"

namespace weft::net_common {
namespace {

int speed_of(const std::string& interface) {
  int speed = 0;
  std::ifstream("/sys/class/net/" + interface + "/speed") >> speed;
  return speed > 0 ? speed : 10000;  // virtual machines report none, or -1
}

std::string pci_path_of(const std::string& interface) {
  std::array<char, PATH_MAX> path{};
  const std::string link = "/sys/class/net/" + interface + "/device";
  return realpath(link.c_str(), path.data()) == nullptr ? "" : path.data();
}

// Addresses that are valid only on the link, or need a scope that the peer does not know.
bool is_link_local(const Address& address) {
  return address.family == 6 && address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80;
}

enum class Choice { kListed, kUsual, kVirtual, kLoopback };

Choice classify(const Config& config, const ifaddrs& entry) {
  if (!config.socket_ifname.empty()) return Choice::kListed;
  if ((entry.ifa_flags & IFF_LOOPBACK) != 0) return Choice::kLoopback;
  return is_virtual_interface(entry.ifa_name) ? Choice::kVirtual : Choice::kUsual;
}

std::vector<Interface> collect(const Config& config, Choice choice) {
  std::vector<Interface> interfaces;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return interfaces;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (config.socket_family == "AF_INET" && family != AF_INET) continue;
    if (config.socket_family == "AF_INET6" && family != AF_INET6) continue;
    if (!interface_matches(config.socket_ifname, i->ifa_name)) continue;
    if (classify(config, *i) != choice) continue;
    Address address = Address::from_sockaddr(i->ifa_addr);
    if (is_link_local(address)) continue;
    address.port = 0;
    auto known_one = std::find_if(interfaces.begin(), interfaces.end(),
                                  [&](const Interface& d) { return d.name == i->ifa_name; });
    if (known_one == interfaces.end()) {
      Interface found;
      found.name = i->ifa_name;
      found.pci_path = pci_path_of(found.name);
      found.speed_mbps = speed_of(found.name);
      found.loopback = (i->ifa_flags & IFF_LOOPBACK) != 0;
      known_one = interfaces.insert(interfaces.end(), std::move(found));
    }
    auto& known = known_one->addresses;
    known.insert(family == AF_INET ? known.begin() : known.end(), address);
  }
  return interfaces;
}

}  // namespace

std::vector<Interface> find_interfaces(const Config& config) {
  std::vector<Interface> interfaces;
  if (!config.socket_ifname.empty()) {
    interfaces = collect(config, Choice::kListed);
    if (interfaces.empty())
      fail(ncclInvalidUsage, "NCCL_SOCKET_IFNAME={} names no interface that is up",
           config.socket_ifname);
  }
  Config usual = config;
  usual.socket_ifname.clear();
  for (const Choice choice : {Choice::kUsual, Choice::kVirtual, Choice::kLoopback})
    if (interfaces.empty()) interfaces = collect(usual, choice);
  if (interfaces.empty()) {
    Interface loopback;
    loopback.name = "lo";
    loopback.loopback = true;
    loopback.addresses.push_back(Address::loopback(0));
    interfaces.push_back(std::move(loopback));
  }
  std::stable_sort(
      interfaces.begin(), interfaces.end(),
      [](const Interface& a, const Interface& b) { return a.speed_mbps > b.speed_mbps; });
  return interfaces;
}

std::vector<Address> addresses_from(const std::vector<Interface>& interfaces, size_t first,
                                    uint16_t port, size_t most) {
  std::vector<Address> addresses;
  // The first address of every interface comes before the second of any.
  size_t longest = 0;
  for (const Interface& d : interfaces) longest = std::max(longest, d.addresses.size());
  for (size_t n = 0; n < longest; n++)
    for (size_t k = 0; k < interfaces.size(); k++) {
      const Interface& d = interfaces[(first + k) % interfaces.size()];
      if (n >= d.addresses.size() || addresses.size() == most) continue;
      addresses.push_back(d.addresses[n]);
      addresses.back().port = port;
    }
  return addresses;
}

}  // namespace weft::net_common
