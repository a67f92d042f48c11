// build_machine() of host.h: from a host's description to the graph.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>

#include "src/topology/sources/host.h"
#include "src/topology/sources/rates.h"

namespace weft {
namespace {

int integer(const std::map<std::string, std::string>& facts, const char* name) {
  const auto it = facts.find(name);
  return it == facts.end() ? 0 : static_cast<int>(std::strtol(it->second.c_str(), nullptr, 0));
}

std::string text(const std::map<std::string, std::string>& facts, const char* name) {
  const auto it = facts.find(name);
  return it == facts.end() ? "" : it->second;
}

class Builder {
 public:
  explicit Builder(const Host& host) : host_(host) {}

  Machine run() {
    machine_.name = host_.name;
    machine_.notes = host_.notes;
    add_gpus();
    add_cpus();
    count_devices();
    add_pci();
    add_nvlinks();
    return std::move(machine_);
  }

 private:
  int add(Node node) {
    std::string id = node.id;
    for (int i = 1; !ids_.insert(id).second; i++) id = fmt::format("{}.{}", node.id, i);
    node.id = id;
    machine_.nodes.push_back(std::move(node));
    return static_cast<int>(machine_.nodes.size()) - 1;
  }

  // Sorts ranks by the file's ranks, then by device number, then by bus.
  void add_gpus() {
    std::vector<size_t> order(host_.gpus.size());
    std::iota(order.begin(), order.end(), 0);
    const auto key = [&](size_t i) {
      const HostGpu& gpu = host_.gpus[i];
      return std::pair<unsigned, unsigned>(gpu.rank, gpu.dev);  // unknown (-1) comes last
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return key(a) < key(b); });
    gpu_node_.resize(host_.gpus.size());
    int next = 0;
    for (const size_t i : order) {
      const HostGpu& gpu = host_.gpus[i];
      Node node;
      node.id = fmt::format("g{}", next++);
      node.type = NodeType::kGpu;
      node.model = gpu.model;
      node.facts = gpu.facts;
      if (gpu.sm > 0) node.facts["sm"] = std::to_string(gpu.sm);
      if (gpu.dev >= 0) node.facts["dev"] = std::to_string(gpu.dev);
      node.numa = host_.cpus[host_.pci[gpu.pci].cpu].numa;
      gpu_node_[i] = add(std::move(node));
    }
  }

  void add_cpus() {
    for (const auto& cpu : host_.cpus) {
      Node node;
      node.id = fmt::format("cpu{}", cpu.numa);
      node.type = NodeType::kCpu;
      node.numa = cpu.numa;
      node.facts = cpu.facts;
      cpu_node_.push_back(add(std::move(node)));
    }
    for (size_t a = 0; a < cpu_node_.size(); a++) {
      for (size_t b = a + 1; b < cpu_node_.size(); b++) {
        const auto& facts = host_.cpus[a].facts;
        connect(machine_, cpu_node_[a], cpu_node_[b], LinkType::kSocket,
                socket_gbps(text(facts, "arch"), text(facts, "vendor"), integer(facts, "familyid"),
                            integer(facts, "modelid")),
                kSocketUs);
      }
    }
  }

  // Counts the children of each bridge that lead to GPUs or NICs.
  void count_devices() {
    below_.assign(host_.pci.size(), 0);
    ports_.assign(host_.pci.size(), {});
    gpu_at_.assign(host_.pci.size(), -1);
    for (size_t i = 0; i < host_.gpus.size(); i++) gpu_at_[host_.gpus[i].pci] = static_cast<int>(i);
    for (size_t i = 0; i < host_.nics.size(); i++)
      if (host_.nics[i].pci >= 0) ports_[host_.nics[i].pci].push_back(static_cast<int>(i));
    for (int i = static_cast<int>(host_.pci.size()) - 1; i >= 0; i--) {
      const bool matters = below_[i] > 0 || gpu_at_[i] >= 0 || !ports_[i].empty();
      if (matters && host_.pci[i].parent >= 0) below_[host_.pci[i].parent]++;
    }
  }

  // A bridge with one child is a wire; a bridge with several is a switch. Parents come first, so
  // one pass is enough.
  void add_pci() {
    struct Place {
      int node = -1;    // the node that a device below connects to
      int narrow = -1;  // the slowest wire between, -1: none
    };
    std::vector<Place> places(host_.pci.size());
    const auto rate = [&](int i) { return pcie_gbps(host_.pci[i].gts, host_.pci[i].width); };
    for (int i = 0; i < static_cast<int>(host_.pci.size()); i++) {
      const HostPci& pci = host_.pci[i];
      Place above;
      if (pci.parent >= 0)
        above = places[pci.parent];
      else
        above.node = cpu_node_[pci.cpu];
      const int narrow = above.narrow >= 0 && rate(above.narrow) < rate(i) ? above.narrow : i;
      const bool device = gpu_at_[i] >= 0 || !ports_[i].empty();
      if (!device && below_[i] == 0) continue;
      if (!device && below_[i] == 1) {
        places[i] = {above.node, narrow};
        continue;
      }
      int node = -1;
      if (gpu_at_[i] >= 0) {
        node = gpu_node_[gpu_at_[i]];
      } else if (ports_[i].size() == 1 && below_[i] == 0) {
        node = add_nic(host_.nics[ports_[i][0]]);
      } else {
        // A PCIe switch, or a device whose ports share its link.
        Node shared;
        shared.type = NodeType::kSwitch;
        shared.id = fmt::format("pcie{}", switches_++);
        shared.model = device ? "NIC with several ports" : "PCIe switch";
        shared.numa = host_.cpus[pci.cpu].numa;
        node = add(std::move(shared));
        for (const int port : ports_[i]) {
          const int nic = add_nic(host_.nics[port]);
          machine_.nodes[nic].pci = pci.bus;
          connect(machine_, node, nic, LinkType::kPcie, rate(i), 0);
        }
      }
      Node& shown = machine_.nodes[node];
      shown.pci = pci.bus;
      shown.facts.insert(pci.facts.begin(), pci.facts.end());
      shown.facts["class"] = fmt::format("0x{:06x}", pci.device_class);
      shown.facts["link_speed"] = fmt::format("{:.1f} GT/s PCIe", host_.pci[narrow].gts);
      shown.facts["link_width"] = std::to_string(host_.pci[narrow].width);
      connect(machine_, above.node, node, LinkType::kPcie, rate(narrow), kPcieHopUs);
      places[i] = {node, -1};
    }
    for (const auto& nic : host_.nics)
      if (nic.pci < 0)
        connect(machine_, cpu_node_[nic.cpu], add_nic(nic), LinkType::kPcie,
                std::max(pcie_gbps(8, 16), network_gbps(nic.mbps)), kPcieHopUs);
  }

  int add_nic(const HostNic& nic) {
    Node node;
    node.id = nic.name.empty() ? "nic" : nic.name;
    node.type = NodeType::kNic;
    node.facts = nic.facts;
    node.facts["speed"] = fmt::format("{:.0f}", nic.mbps);
    node.gbps = network_gbps(nic.mbps);
    const auto link_layer = text(nic.facts, "link_layer");
    const bool rdma = !link_layer.empty() || integer(nic.facts, "port") > 0 ||
                      integer(nic.facts, "gdr") > 0 || nic.name.compare(0, 4, "mlx5") == 0 ||
                      (nic.pci >= 0 && host_.pci[nic.pci].device_class >> 8 == 0x0207);
    node.us = rdma ? kInfinibandHopUs : kEthernetHopUs;
    const int cpu = nic.pci >= 0 ? host_.pci[nic.pci].cpu : nic.cpu;
    node.numa = host_.cpus[cpu].numa;
    return add(std::move(node));
  }

  void add_nvlinks() {
    std::map<std::string, int> gpu_by_bus;
    for (size_t i = 0; i < host_.gpus.size(); i++)
      gpu_by_bus[host_.pci[host_.gpus[i].pci].bus] = static_cast<int>(i);
    std::map<std::pair<int, int>, Link> direct;  // by pair of nodes
    std::set<std::string> fabric;
    int nvswitch = -1;
    for (size_t i = 0; i < host_.gpus.size(); i++) {
      const HostGpu& gpu = host_.gpus[i];
      int to_fabric = 0;
      for (const auto& nvlink : gpu.links) {
        const double rate = nvlink.xgmi ? xgmi_gbps(arch(gpu)) : nvlink_gbps(gpu.sm);
        const LinkType type = nvlink.xgmi ? LinkType::kXgmi : LinkType::kNvlink;
        int other = -1;
        double other_rate = rate;
        if (const auto it = gpu_by_bus.find(nvlink.target); it != gpu_by_bus.end()) {
          const HostGpu& peer = host_.gpus[it->second];
          other = gpu_node_[it->second];
          if (!nvlink.xgmi && peer.sm > 0) other_rate = nvlink_gbps(peer.sm);
        } else if (nvlink.target.compare(0, 3, "cpu") == 0) {
          const int numa = std::atoi(nvlink.target.c_str() + 3);
          for (size_t c = 0; c < host_.cpus.size(); c++)
            if (host_.cpus[c].numa == numa) other = cpu_node_[c];
          if (other < 0) continue;
        } else {
          to_fabric += nvlink.count;
          fabric.insert(nvlink.target);
          continue;
        }
        Link& link = direct[{gpu_node_[i], other}];
        const int count = (link.gbps > 0 ? link.count : 0) + nvlink.count;
        link = {gpu_node_[i],
                other,
                type,
                count * std::min(rate, other_rate),
                nvlink.xgmi ? kXgmiUs : kNvlinkUs,
                count};
      }
      if (to_fabric > 0) {
        if (nvswitch < 0) {
          Node node;
          node.id = "nvs";
          node.type = NodeType::kSwitch;
          node.model = "NVSwitch";
          if (gpu.facts.count("fabric") > 0) node.facts["fabric"] = gpu.facts.at("fabric");
          nvswitch = add(std::move(node));
        }
        connect(machine_, gpu_node_[i], nvswitch, LinkType::kNvlink,
                to_fabric * nvlink_gbps(gpu.sm), kNvswitchHopUs, to_fabric);
      }
      if (gpu.c2c_gbps > 0)
        connect(machine_, gpu_node_[i], cpu_node_[host_.pci[gpu.pci].cpu], LinkType::kC2c,
                gpu.c2c_gbps, kC2cUs, std::max(1, gpu.c2c_count));
    }
    add_direct(direct);
    if (nvswitch >= 0) {
      const size_t groups = fabric_groups();
      if (fabric.begin()->compare(0, 6, "ffffff") != 0)
        machine_.nodes[nvswitch].pci = *fabric.begin();
      if (groups > 1)
        machine_.notes.push_back(fmt::format(
            "{} NVSwitches in {} groups, and no link between them is reported: taken as one fabric",
            fabric.size(), groups));
      if (fabric.size() > 1)
        machine_.nodes[nvswitch].model = fmt::format("NVSwitch ({} chips)", fabric.size());
    }
  }

  // Counts groups of NVSwitches that no GPU connects (a DGX-2 has two boards of six).
  size_t fabric_groups() const {
    std::vector<std::set<std::string>> groups;
    for (const auto& gpu : host_.gpus) {
      std::set<std::string> mine;
      for (const auto& link : gpu.links)
        if (link.target_class == 0x068000) mine.insert(link.target);
      if (mine.empty()) continue;
      for (auto it = groups.begin(); it != groups.end();) {
        const bool meets = std::any_of(
            it->begin(), it->end(), [&](const std::string& each) { return mine.count(each) > 0; });
        if (meets) mine.insert(it->begin(), it->end());
        it = meets ? groups.erase(it) : it + 1;
      }
      groups.push_back(std::move(mine));
    }
    return groups.size();
  }

  // Both ends report their links. Adds a note if one end reports none or fewer.
  void add_direct(const std::map<std::pair<int, int>, Link>& direct) {
    for (const auto& [ends, link] : direct) {
      const auto back = direct.find({ends.second, ends.first});
      const bool to_gpu = machine_.nodes[ends.second].type == NodeType::kGpu;
      if (back != direct.end() && ends.second < ends.first) continue;
      Link both = link;
      if (back != direct.end() && back->second.count < link.count) both = back->second;
      if (to_gpu && (back == direct.end() || back->second.count != link.count))
        machine_.notes.push_back(
            fmt::format("{} reports {} links to {}, which reports {}: {} are used",
                        machine_.nodes[ends.first].id, link.count, machine_.nodes[ends.second].id,
                        back == direct.end() ? 0 : back->second.count, both.count));
      connect(machine_, ends.first, ends.second, both.type, both.gbps, both.us, both.count);
    }
  }

  static std::string arch(const HostGpu& gpu) {
    const std::string name = text(gpu.facts, "gcn");
    return name.empty() ? text(gpu.facts, "arch") : name;
  }

  const Host& host_;
  Machine machine_;
  std::set<std::string> ids_;
  std::vector<int> gpu_node_, cpu_node_, below_, gpu_at_;
  std::vector<std::vector<int>> ports_;
  int switches_ = 0;
};

}  // namespace

Machine build_machine(Host host) {
  correct_claims(host);
  return Builder(host).run();
}

}  // namespace weft
