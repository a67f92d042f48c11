// read_nics() of sysfs_host.h.
#include <fmt/format.h>

#include <cstdlib>
#include <set>
#include <sstream>

#include "src/topology/sources/sysfs_host.h"
#include "src/topology/sources/virtual_nics.h"

namespace weft {
namespace {

// The PCI device of a NIC: the last bus id on its path. (virtio devices sit one level below
// theirs.)
int pci_of(const Host& host, const Sysfs& sysfs, const std::string& device) {
  int found = -1;
  std::istringstream path(sysfs.real(device));
  for (std::string part; std::getline(path, part, '/');)
    if (const int pci = find_pci(host, part); pci >= 0) found = pci;
  return found;
}

void place(HostNic& nic, Host& host, const Sysfs& sysfs, const std::string& device) {
  nic.pci = pci_of(host, sysfs, device);
  if (nic.pci >= 0) {
    nic.cpu = host.pci[nic.pci].cpu;
    return;
  }
  const int numa = static_cast<int>(sysfs.number(device + "/numa_node", -1));
  for (size_t i = 0; i < host.cpus.size(); i++)
    if (host.cpus[i].numa == numa) nic.cpu = static_cast<int>(i);
}

int count_gids(const Sysfs& sysfs, const std::string& port) {
  int count = 0;
  for (const auto& gid : sysfs.list(port + "/gids"))
    if (const std::string value = sysfs.line(port + "/gids/" + gid);
        !value.empty() && value.find_first_not_of("0:") != std::string::npos)
      count++;
  return count;
}

// Adds RDMA devices; returns their PCI devices.
std::set<int> read_rdma(Host& host, const Sysfs& sysfs) {
  std::set<int> taken;
  for (const auto& name : sysfs.list("/sys/class/infiniband")) {
    const std::string device = "/sys/class/infiniband/" + name;
    const auto ports = sysfs.list(device + "/ports");
    for (const auto& number : ports) {
      const std::string port = device + "/ports/" + number;
      const std::string state = sysfs.line(port + "/state");  // "4: ACTIVE"
      const std::string who = ports.size() > 1 ? fmt::format("{}:{}", name, number) : name;
      HostNic nic;
      nic.name = who;
      place(nic, host, sysfs, device + "/device");
      if (nic.pci >= 0) taken.insert(nic.pci);
      if (state.find("ACTIVE") == std::string::npos) {
        host.notes.push_back(fmt::format("{}: left out, its port is {}", who,
                                         state.empty() ? "in no known state" : state));
        continue;
      }
      // "400 Gb/sec (4X NDR)"
      nic.mbps = sysfs.number(port + "/rate", 0) * 1000;
      nic.facts["port"] = number;
      nic.facts["link_layer"] = sysfs.line(port + "/link_layer");
      nic.facts["gids"] = std::to_string(count_gids(sysfs, port));
      nic.facts["firmware"] = sysfs.line(device + "/fw_ver");
      std::string guid = sysfs.line(device + "/node_guid");
      std::erase(guid, ':');
      if (!guid.empty()) nic.facts["guid"] = fmt::format("0x{}", guid);
      nic.facts["maxconn"] = "262144";
      nic.facts["gdr"] = gpudirect(sysfs).empty() ? "0" : "1";
      std::erase_if(nic.facts, [](const auto& each) { return each.second.empty(); });
      host.nics.push_back(std::move(nic));
    }
  }
  return taken;
}

}  // namespace

void read_nics(Host& host, const Sysfs& sysfs) {
  host.nics.clear();
  const std::set<int> rdma = read_rdma(host, sysfs);
  for (const auto& name : sysfs.list("/sys/class/net")) {
    const std::string folder = "/sys/class/net/" + name;
    if (name == "lo" || name == "bonding_masters") continue;
    std::string_view reason = virtual_nic(name);
    if (reason.empty() && sysfs.real(folder).find("/devices/virtual/") != std::string::npos &&
        name.compare(0, 4, "bond") != 0)
      reason = "a virtual interface";
    if (!reason.empty()) {
      host.notes.push_back(fmt::format("{}: left out ({}, no cable behind it)", name, reason));
      continue;
    }
    HostNic nic;
    nic.name = name;
    place(nic, host, sysfs, folder + "/device");
    if (nic.pci >= 0 && rdma.count(nic.pci) > 0) {
      for (auto& other : host.nics)
        if (other.pci == nic.pci) other.facts.emplace("interface", name);
      continue;
    }
    const std::string state = sysfs.line(folder + "/operstate");
    if (state == "down" || state == "lowerlayerdown" || state == "notpresent") {
      host.notes.push_back(fmt::format("{}: left out, no link ({})", name, state));
      continue;
    }
    if (sysfs.exists(folder + "/master") && !sysfs.exists(folder + "/device")) continue;
    nic.mbps = std::max(0.0, sysfs.number(folder + "/speed", 0));
    if (nic.mbps > 1e7) nic.mbps = 0;  // -1 as unsigned
    nic.facts.emplace("port", "0");
    host.nics.push_back(std::move(nic));
  }
}

}  // namespace weft
