// See virtual_nics.h.
#include "src/topology/sources/virtual_nics.h"

#include <cctype>

namespace weft {

std::string_view virtual_nic(std::string_view name) {
  struct Prefix {
    std::string_view text, what;
  };
  static constexpr Prefix kPrefixes[] = {
      {"veth", "a container's veth"},
      {"docker", "Docker's bridge"},
      {"br-", "a bridge"},
      {"virbr", "libvirt's bridge"},
      {"cali", "Calico's veth"},
      {"tunl", "a tunnel"},
      {"flannel", "Flannel's overlay"},
      {"cni", "a CNI bridge"},
      {"cilium", "Cilium's overlay"},
      {"lxc", "a container's veth"},
      {"lxd", "LXD's bridge"},
      {"kube", "a Kubernetes interface"},
      {"vxlan", "an overlay"},
      {"geneve", "an overlay"},
      {"gre", "a tunnel"},
      {"sit", "a tunnel"},
      {"ip6tnl", "a tunnel"},
      {"tun", "a tunnel"},
      {"tap", "a virtual machine's tap"},
      {"vnet", "a virtual machine's tap"},
      {"wg", "a WireGuard tunnel"},
      {"dummy", "a dummy"},
      {"ifb", "a traffic shaper"},
      {"ovs", "Open vSwitch's interface"},
      {"macvtap", "a virtual machine's tap"},
      {"podman", "Podman's bridge"},
      {"weave", "Weave's overlay"},
      {"nerdctl", "a container bridge"},
  };
  if (name == "lo") return "the loopback";
  for (const auto& prefix : kPrefixes)
    if (name.substr(0, prefix.text.size()) == prefix.text) return prefix.what;
  // br0, br1... but not brcm0.
  if (name.size() > 2 && name.substr(0, 2) == "br" &&
      std::isdigit(static_cast<unsigned char>(name[2])) != 0)
    return "a bridge";
  return "";
}

}  // namespace weft
