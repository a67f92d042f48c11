// The reader of nccl_xml.h.
#include "src/topology/formats/nccl_xml.h"

#include <fmt/format.h>

#include <cstdlib>
#include <set>

#include "src/topology/formats/xml.h"

namespace weft {
namespace {

constexpr int kDeepestBridge = 64;  // bridges below bridges

class NcclReader {
 public:
  NcclReader(std::string_view text, const std::string& where) : xml_(text, where) {}

  Host run() {
    const pugi::xml_node system = xml_.root();
    if (system.name() != std::string_view("system"))
      xml_.refuse(system, "an NCCL topology file begins with <system>");
    const int version = xml_.integer(system, "version", 0);
    if (version != 1 && version != 2)
      xml_.refuse(system, "needs version=\"1\" (NCCL) or version=\"2\" (RCCL)");
    host_.name = system.attribute("name").value();
    for (const auto& node : system.children("cpu")) read_cpu(node);
    for (const auto& node : system.children())
      if (node.name() != std::string_view("cpu")) ignore(node);
    adopt_bare_devices(host_);
    return std::move(host_);
  }

 private:
  void ignore(const pugi::xml_node& node) {
    if (unknown_.insert(node.name()).second && unknown_.size() < 20)
      host_.notes.push_back(fmt::format("<{}> elements are ignored", node.name()));
  }

  // Copies the attributes that exist.
  static void keep(std::map<std::string, std::string>& facts, const pugi::xml_node& node,
                   std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (const auto attribute = node.attribute(name)) facts[name] = attribute.value();
  }

  void read_cpu(const pugi::xml_node& node) {
    if (!node.attribute("numaid")) xml_.refuse(node, "numaid is missing");
    HostCpu cpu;
    cpu.numa = xml_.integer(node, "numaid", -1);
    if (cpu.numa < -1) xml_.refuse(node, "numaid below -1");
    keep(cpu.facts, node, {"affinity", "arch", "vendor", "familyid", "modelid"});
    for (const auto& other : host_.cpus)
      if (cpu.numa >= 0 && other.numa == cpu.numa)
        xml_.refuse(node, fmt::format("there are two with numaid {}", cpu.numa));
    host_.cpus.push_back(std::move(cpu));
    const int index = static_cast<int>(host_.cpus.size()) - 1;
    for (const auto& child : node.children()) {
      const std::string_view name = child.name();
      if (name == "pci")
        read_pci(child, index, -1, 0);
      else if (name == "nic")
        read_nic(child, index, -1);
      else
        ignore(child);
    }
  }

  void read_pci(const pugi::xml_node& node, int cpu, int parent, int depth) {
    if (depth > kDeepestBridge) xml_.refuse(node, "is nested too deep");
    HostPci pci;
    pci.bus = normal_bus(node.attribute("busid").value());
    if (pci.bus.empty()) xml_.refuse(node, "busid is missing");
    if (pci.bus.size() > 40) xml_.refuse(node, "busid is too long");
    if (!buses_.insert(pci.bus).second)
      xml_.refuse(node, fmt::format("there are two with busid {}", pci.bus));
    pci.parent = parent;
    pci.cpu = cpu;
    pci.device_class =
        static_cast<unsigned>(std::strtoul(node.attribute("class").value(), nullptr, 16)) &
        0xffffff;
    // Only the number counts in "16 GT/s", "16.0 GT/s PCIe" and AWS's "32 GT/s PCIe/s".
    pci.gts = std::strtod(node.attribute("link_speed").value(), nullptr);
    if (!(pci.gts > 0 && pci.gts <= 128)) pci.gts = 0;
    pci.width = xml_.integer(node, "link_width", 0);
    if (pci.width < 0 || pci.width > 32) pci.width = 0;
    keep(pci.facts, node, {"vendor", "device", "subsystem_vendor", "subsystem_device"});
    host_.pci.push_back(std::move(pci));
    const int index = static_cast<int>(host_.pci.size()) - 1;
    for (const auto& child : node.children()) {
      const std::string_view name = child.name();
      if (name == "pci")
        read_pci(child, cpu, index, depth + 1);
      else if (name == "gpu")
        read_gpu(child, index);
      else if (name == "nic")
        read_nic(child, cpu, index);
      else if (name != "pcilink")
        ignore(child);
    }
  }

  void read_gpu(const pugi::xml_node& node, int pci) {
    for (const auto& other : host_.gpus)
      if (other.pci == pci) xml_.refuse(node, "is the second one of its <pci>");
    HostGpu gpu;
    gpu.pci = pci;
    gpu.dev = xml_.integer(node, "dev", -1);
    gpu.rank = xml_.integer(node, "rank", -1);
    gpu.sm = xml_.integer(node, "sm", 0);
    keep(gpu.facts, node, {"gdr", "gcn", "arch", "mlopart", "p2p"});
    for (const auto& child : node.children()) {
      const std::string_view name = child.name();
      if (name == "nvlink" || name == "xgmi") {
        HostNvlink link;
        link.xgmi = name == "xgmi";
        link.target = normal_bus(child.attribute("target").value());
        if (link.target.empty()) xml_.refuse(child, "target is missing");
        if (link.target.compare(0, 3, "cpu") == 0) xml_.refuse(child, "target is no bus id");
        link.count = xml_.integer(child, "count", 1);
        if (link.count < 0 || link.count > 1024) xml_.refuse(child, "count is out of range");
        link.target_class =
            static_cast<unsigned>(std::strtoul(child.attribute("tclass").value(), nullptr, 16)) &
            0xffffff;
        gpu.links.push_back(std::move(link));
      } else if (name == "c2c") {
        gpu.c2c_count = xml_.integer(child, "count", 1);
        gpu.c2c_gbps = gpu.c2c_count * xml_.number(child, "bw", 0) / 1000;
        if (gpu.c2c_count < 0 || gpu.c2c_gbps < 0) xml_.refuse(child, "is negative");
      } else {
        ignore(child);
      }
    }
    host_.gpus.push_back(std::move(gpu));
  }

  void read_nic(const pugi::xml_node& node, int cpu, int pci) {
    for (const auto& net : node.children()) {
      if (net.name() != std::string_view("net")) {
        ignore(net);
        continue;
      }
      HostNic nic;
      nic.name = net.attribute("name").value();
      nic.pci = pci;
      nic.cpu = cpu;
      nic.mbps = std::max(0.0, xml_.number(net, "speed", 0));
      if (nic.mbps > 1e8) xml_.refuse(net, "speed is in Mb/s, this is too much");
      keep(nic.facts, net,
           {"dev", "port", "guid", "gdr", "maxconn", "latency", "coll", "rail", "plane"});
      host_.nics.push_back(std::move(nic));
    }
  }

  XmlFile xml_;
  Host host_;
  std::set<std::string> unknown_, buses_;
};

}  // namespace

Host host_from_nccl_xml(std::string_view text, const std::string& where) {
  return NcclReader(text, where).run();
}

}  // namespace weft
