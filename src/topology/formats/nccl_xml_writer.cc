// The writer of nccl_xml.h.
#include <fmt/format.h>

#include <set>

#include "src/base/error.h"
#include "src/topology/formats/nccl_xml.h"
#include "src/topology/formats/xml.h"
#include "src/topology/sources/rates.h"

namespace weft {
namespace {

class Writer {
 public:
  explicit Writer(const Machine& machine) : machine_(machine), bus_(machine.nodes.size()) {
    std::set<std::string> taken;
    for (const auto& node : machine.nodes) taken.insert(node.pci);
    int next = 1;
    for (size_t i = 0; i < machine.nodes.size(); i++) {
      bus_[i] = machine.nodes[i].pci;
      while (bus_[i].empty()) {
        const std::string free = fmt::format("00{:02x}:{:02x}:00.0", next >> 8, next & 0xff);
        next++;
        if (taken.insert(free).second) bus_[i] = free;
      }
    }
    xgmi_ = false;
    for (const auto& link : machine.links) xgmi_ = xgmi_ || link.type == LinkType::kXgmi;
  }

  std::string run() {
    line(0, "<system version=\"{}\">", xgmi_ ? 2 : 1);
    const auto cpus = nodes_of(machine_, NodeType::kCpu);
    done_.assign(machine_.nodes.size(), false);
    for (const int cpu : cpus) {
      open_cpu(machine_.nodes[cpu]);
      below(cpu, 2);
      if (cpu == cpus.back()) orphans();
      line(1, "</cpu>");
    }
    if (cpus.empty()) {
      Node one;
      one.numa = 0;
      open_cpu(one);
      orphans();
      line(1, "</cpu>");
    }
    line(0, "</system>");
    return std::move(text_);
  }

 private:
  template <typename... Args>
  void line(int indent, fmt::format_string<Args...> format, Args&&... args) {
    text_.append(static_cast<size_t>(indent) * 2, ' ');
    text_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }

  // name="value" for known facts, and defaults for those that NCCL needs. NCCL fills in the rest
  // from the machine. (It would bind threads to an invented affinity.)
  static std::string attribute(const Node& node, const char* name,
                               std::string_view otherwise = "") {
    std::string_view value = fact(node, name);
    if (value.empty()) value = otherwise;
    return value.empty() ? "" : fmt::format(" {}=\"{}\"", name, xml_escaped(value));
  }

  void open_cpu(const Node& cpu) {
    const bool intel = fact(cpu, "arch").empty() && fact(cpu, "vendor").empty();
    line(1, "<cpu numaid=\"{}\"{}{}{}{}{}>", cpu.numa, attribute(cpu, "affinity"),
         attribute(cpu, "arch", "x86_64"), attribute(cpu, "vendor", intel ? "GenuineIntel" : ""),
         attribute(cpu, "familyid", intel ? "6" : ""),
         attribute(cpu, "modelid", intel ? "85" : ""));
  }

  // Writes the nodes below a CPU or switch that are not written yet.
  void below(int parent, int indent) {
    done_[parent] = true;
    for (const auto& link : machine_.links) {
      if (link.from != parent || link.type != LinkType::kPcie || done_[link.to]) continue;
      if (machine_.nodes[link.to].type == NodeType::kCpu) continue;
      device(link.to, link.gbps, indent, machine_.nodes[parent].type == NodeType::kCpu);
    }
  }

  void orphans() {
    for (size_t i = 0; i < machine_.nodes.size(); i++) {
      const NodeType type = machine_.nodes[i].type;
      if (!done_[i] && (type == NodeType::kGpu || type == NodeType::kNic))
        device(static_cast<int>(i), pcie_gbps(16, 16), 2, true);
    }
  }

  void device(int index, double gbps, int indent, bool on_cpu) {
    const Node& node = machine_.nodes[index];
    done_[index] = true;
    if (node.type == NodeType::kNic && node.pci.empty() && on_cpu) {
      line(indent, "<nic>");
      net(node, indent + 1);
      line(indent, "</nic>");
      return;
    }
    const bool ports = node.type == NodeType::kSwitch && fact(node, "class").substr(0, 4) == "0x02";
    const char* usual = node.type == NodeType::kGpu   ? "0x030200"
                        : node.type == NodeType::kNic ? "0x020000"
                                                      : "0x060400";
    double gts = 16;
    int width = 16;
    pcie_from_effective(gbps, gts, width);
    line(indent, "<pci busid=\"{}\"{}{}{}{}{}{}{}>", xml_escaped(bus_[index]),
         attribute(node, "class", usual), attribute(node, "vendor"), attribute(node, "device"),
         attribute(node, "subsystem_vendor"), attribute(node, "subsystem_device"),
         attribute(node, "link_speed", fmt::format("{:.1f} GT/s PCIe", gts)),
         attribute(node, "link_width", std::to_string(width)));
    if (node.type == NodeType::kGpu)
      gpu(index, indent + 1);
    else if (node.type == NodeType::kNic || ports)
      nic(index, ports, indent + 1);
    if (node.type == NodeType::kSwitch && !ports) below(index, indent + 1);
    line(indent, "</pci>");
  }

  void nic(int index, bool ports, int indent) {
    line(indent, "<nic>");
    if (!ports) net(machine_.nodes[index], indent + 1);
    for (const auto& link : machine_.links) {
      if (!ports || link.from != index || done_[link.to]) continue;
      if (machine_.nodes[link.to].type != NodeType::kNic) continue;
      done_[link.to] = true;
      net(machine_.nodes[link.to], indent + 1);
    }
    line(indent, "</nic>");
  }

  void net(const Node& node, int indent) {
    line(indent, "<net name=\"{}\"{}{}{}{}{}{}{}{}/>", xml_escaped(node.id),
         attribute(node, "dev", std::to_string(nets_)),
         attribute(node, "speed", fmt::format("{:.0f}", network_mbps(node.gbps))),
         attribute(node, "port", "0"), attribute(node, "latency", "0.000000"),
         attribute(node, "guid", fmt::format("0x{:x}", nets_)), attribute(node, "maxconn", "65536"),
         attribute(node, "gdr", "0"), attribute(node, "coll"));
    nets_++;
  }

  void gpu(int index, int indent) {
    const Node& node = machine_.nodes[index];
    const int rank = rank_of(index);
    std::string children;
    std::swap(children, text_);
    for (const auto& link : machine_.links) {
      if (link.from != index) continue;
      const Node& peer = machine_.nodes[link.to];
      const bool hidden = peer.type == NodeType::kSwitch && peer.pci.empty();
      if (link.type == LinkType::kC2c)
        line(indent + 1, "<c2c bw=\"{:.0f}\" count=\"{}\"/>", link.gbps * 1000 / link.count,
             link.count);
      // This format cannot express a link into a CPU.
      if ((link.type != LinkType::kNvlink && link.type != LinkType::kXgmi) ||
          peer.type == NodeType::kCpu)
        continue;
      line(indent + 1, "<{} target=\"{}\" count=\"{}\" tclass=\"{}\"/>",
           link.type == LinkType::kXgmi ? "xgmi" : "nvlink",
           hidden ? "fffffff:ffff:ff" : xml_escaped(bus_[link.to]), link.count,
           peer.type == NodeType::kGpu ? "0x030200" : "0x068000");
    }
    std::swap(children, text_);
    line(indent, "<gpu{}{} rank=\"{}\"{}{}{}{}{}", attribute(node, "dev", std::to_string(rank)),
         attribute(node, "sm"), rank, attribute(node, "gdr"), attribute(node, "gcn"),
         attribute(node, "arch"), attribute(node, "p2p"), children.empty() ? "/>" : ">");
    if (children.empty()) return;
    text_ += children;
    line(indent, "</gpu>");
  }

  int rank_of(int index) const {
    int rank = 0;
    for (const int each : gpus(machine_)) {
      if (each == index) break;
      rank++;
    }
    return rank;
  }

  const Machine& machine_;
  std::vector<std::string> bus_;
  std::vector<bool> done_;
  std::string text_;
  int nets_ = 0;
  bool xgmi_ = false;
};

}  // namespace

std::string machine_to_nccl_xml(const Machine& machine) {
  if (count_hosts(machine) > 1)
    fail(ncclInvalidArgument, "{}: NCCL's format describes one host, this machine has {}",
         machine.name, count_hosts(machine));
  return Writer(machine).run();
}

}  // namespace weft
