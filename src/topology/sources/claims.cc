// correct_claims() of host.h: machines report wrong values, virtual machines most of all.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "src/topology/sources/host.h"
#include "src/topology/sources/rates.h"
#include "src/topology/sources/virtual_nics.h"

namespace weft {
namespace {

// Notes of one kind share a line.
class Grouped {
 public:
  void add(const std::string& who, const std::string& what) {
    for (auto& [text, names] : lines_)
      if (text == what) return names.push_back(who);
    lines_.push_back({what, {who}});
  }
  void flush(std::vector<std::string>& notes) const {
    for (auto [text, names] : lines_) {
      std::sort(names.begin(), names.end());
      notes.push_back(fmt::format("{}: {}", fmt::join(names, ", "), text));
    }
  }

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> lines_;
};

std::string speed(double gts, int width) {
  if (gts == 0 && width == 0) return "no link speed and no width";
  if (gts == 0) return fmt::format("no link speed, x{}", width);
  if (width == 0) return fmt::format("{} GT/s and width 0", gts);
  return fmt::format("{} GT/s x{}", gts, width);
}

unsigned number(const std::map<std::string, std::string>& facts, const char* name) {
  const auto it = facts.find(name);
  return it == facts.end() ? 0
                           : static_cast<unsigned>(std::strtoul(it->second.c_str(), nullptr, 16));
}

const KnownDevice* known(const HostPci& pci) {
  return known_device(number(pci.facts, "vendor"), number(pci.facts, "device"));
}

void correct_cpus(Host& host, Grouped& notes) {
  if (host.cpus.empty()) {
    host.cpus.push_back({0, {}});
    host.notes.emplace_back("no CPU is described: one is assumed");
  }
  for (auto& cpu : host.cpus) {
    if (cpu.numa >= 0) continue;
    int numa = 0;
    const auto taken = [&] {
      return std::any_of(host.cpus.begin(), host.cpus.end(),
                         [&](const HostCpu& other) { return other.numa == numa; });
    };
    while (taken()) numa++;
    notes.add("cpu", fmt::format("says NUMA node -1 (unknown), taken as node {}", numa));
    cpu.numa = numa;
  }
}

void correct_nics(Host& host, Grouped& notes) {
  std::erase_if(host.nics, [&](const HostNic& nic) {
    const auto reason = virtual_nic(nic.name);
    if (reason.empty()) return false;
    notes.add(nic.name, fmt::format("left out ({}, no cable behind it)", reason));
    return true;
  });
  for (auto& nic : host.nics) {
    if (nic.mbps > 0) continue;
    const HostPci* pci = nic.pci >= 0 ? &host.pci[nic.pci] : nullptr;
    const KnownDevice* device = pci != nullptr ? known(*pci) : nullptr;
    if (device != nullptr && device->mbps > 0) {
      nic.mbps = device->mbps;
      notes.add(nic.name, fmt::format("speed unknown, taken as {} Gb/s ({})", nic.mbps / 1000,
                                      device->model));
    } else {
      const bool infiniband = pci != nullptr && pci->device_class >> 8 == 0x0207;
      nic.mbps = infiniband ? 100000 : 10000;
      notes.add(nic.name, fmt::format("speed unknown, taken as {} Gb/s ({})", nic.mbps / 1000,
                                      infiniband ? "InfiniBand" : "as NCCL does"));
    }
  }
}

void correct_endpoint(HostPci& pci, double gts, const char* why, bool gpu, Grouped& notes) {
  // A GPU at 2.5 GT/s is asleep or in a virtual machine; no board is built that way.
  const bool speed_lies = pci.gts <= 0 || (gpu && pci.gts <= 2.5);
  const bool width_lies = pci.width <= 0 || (gpu && pci.width == 1);
  if (!speed_lies && !width_lies) return;
  const std::string said = speed(pci.gts, pci.width);
  if (speed_lies) pci.gts = gts;
  if (width_lies) pci.width = 16;
  notes.add(pci.bus,
            fmt::format("says {}, taken as {} ({})", said, speed(pci.gts, pci.width), why));
}

void correct_pci(Host& host, Grouped& notes) {
  std::vector<bool> gpu(host.pci.size(), false), nic(host.pci.size(), false);
  for (auto& each : host.gpus) {
    HostPci& pci = host.pci[each.pci];
    gpu[each.pci] = true;
    if (const KnownDevice* device = known(pci)) {
      if (each.sm == 0) each.sm = device->sm;
      if (each.model.empty()) each.model = device->model;
    }
    const double gts = each.sm >= 90 ? 32 : each.sm >= 80 ? 16 : 8;
    correct_endpoint(pci, gts, each.sm != 0 ? "what such GPUs have" : "an assumption", true, notes);
  }
  for (const auto& each : host.nics) {
    if (each.pci < 0) continue;
    nic[each.pci] = true;
    double gts = 8;
    while (gts < 32 && pcie_gbps(gts, 16) < network_gbps(each.mbps)) gts *= 2;
    correct_endpoint(host.pci[each.pci], gts, "enough for its ports", false, notes);
  }
  // Bridges, from the leaves up. A bridge of generation 1 or 2, or of one lane, that is slower than
  // a device below takes that device's speed.
  std::vector<int> fastest(host.pci.size(), -1);
  for (int i = static_cast<int>(host.pci.size()) - 1; i >= 0; i--) {
    HostPci& pci = host.pci[i];
    if (!gpu[i] && !nic[i]) {
      if (fastest[i] < 0) continue;  // leads to no GPU or NIC
      const HostPci& child = host.pci[fastest[i]];
      const bool unknown = pci.gts <= 0 || pci.width <= 0;
      const bool slow = pci.gts <= 5 || pci.width <= 1;
      if (unknown || (slow && pcie_gbps(pci.gts, pci.width) < pcie_gbps(child.gts, child.width))) {
        notes.add(pci.bus, fmt::format("bridge says {}, taken as {} like the fastest device below",
                                       speed(pci.gts, pci.width), speed(child.gts, child.width)));
        pci.gts = child.gts;
        pci.width = child.width;
      }
    }
    if (pci.parent < 0) continue;
    int& best = fastest[pci.parent];
    if (best < 0 ||
        pcie_gbps(pci.gts, pci.width) > pcie_gbps(host.pci[best].gts, host.pci[best].width))
      best = i;
  }
}

void correct_nvlinks(Host& host, Grouped& notes) {
  for (auto& gpu : host.gpus) {
    const std::string& self = host.pci[gpu.pci].bus;
    std::erase_if(gpu.links, [&](HostNvlink& link) {
      if (link.target.compare(0, 3, "cpu") == 0) return false;
      if (link.target == self) {
        notes.add(self, fmt::format("{} NVLinks lead to the GPU itself, left out", link.count));
        return true;
      }
      const bool hidden = link.target.compare(0, 6, "ffffff") == 0;
      const bool gpu_there =
          std::any_of(host.gpus.begin(), host.gpus.end(),
                      [&](const HostGpu& other) { return host.pci[other.pci].bus == link.target; });
      if (gpu_there) {
        link.target_class = 0x030200;
      } else if (link.xgmi) {
        notes.add(self, fmt::format("xGMI to {} left out: no such GPU here", link.target));
        return true;
      } else if (hidden) {
        notes.add(
            self,
            "NVLinks lead to a device that this virtual machine cannot see, taken as NVSwitch");
        link.target_class = 0x068000;
      } else if (link.target_class >> 16 == 0x03) {
        notes.add(self,
                  fmt::format("NVLinks to {} left out: no such GPU here (masked?)", link.target));
        return true;
      } else if (link.target_class != 0x068000) {
        notes.add(self,
                  fmt::format("NVLinks to {}, of an unknown kind, taken as NVSwitch", link.target));
        link.target_class = 0x068000;
      }
      return link.count <= 0;
    });
  }
}

}  // namespace

void correct_claims(Host& host) {
  Grouped notes;
  correct_cpus(host, notes);
  correct_nics(host, notes);
  correct_pci(host, notes);
  correct_nvlinks(host, notes);
  notes.flush(host.notes);
}

}  // namespace weft
