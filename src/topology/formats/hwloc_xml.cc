// See hwloc_xml.h.
#include "src/topology/formats/hwloc_xml.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "src/base/error.h"
#include "src/topology/formats/xml.h"
#include "src/topology/sources/rates.h"

namespace weft {
namespace {

constexpr int kDeepestObject = 256;
constexpr size_t kLargestMatrix = 1024;

std::string info(const pugi::xml_node& object, const char* name) {
  for (const auto& each : object.children("info"))
    if (each.attribute("name").value() == std::string_view(name))
      return each.attribute("value").value();
  return "";
}

class HwlocReader {
 public:
  HwlocReader(std::string_view text, const std::string& where) : xml_(text, where) {}

  Host run() {
    const pugi::xml_node root = xml_.root();
    if (root.name() != std::string_view("topology"))
      xml_.refuse(root, "an hwloc file begins with <topology>");
    const std::string version = root.attribute("version").value();
    if (version.empty() || version[0] != '2')
      xml_.refuse(root, "this is hwloc's format 1; lstopo of hwloc 2 writes format 2");
    for (const auto& object : root.children("object")) {
      host_.name = info(object, "DMIProductName");
      arch_ = info(object, "Architecture");
      read_cpus(object, object, 0);
      read_io(object, {}, 0);
    }
    if (host_.cpus.empty()) host_.cpus.push_back({0, {{"arch", arch_}}});
    name_nics();
    for (const auto& matrix : root.children("distances2hetero")) read_matrix(matrix);
    for (const auto& matrix : root.children("distances2")) read_matrix(matrix);
    return std::move(host_);
  }

 private:
  // NUMA nodes, with their package's facts about the processor.
  void read_cpus(const pugi::xml_node& object, pugi::xml_node package, int depth) {
    if (depth > kDeepestObject) xml_.refuse(object, "is nested too deep");
    const std::string_view type = object.attribute("type").value();
    if (type == "Package") {
      package = object;
      const auto set = numa_in(object);
      packages_[xml_.number(object, "gp_index", -1)] = set < 0 ? 0 : set;
    }
    if (type == "NUMANode") {
      HostCpu cpu;
      cpu.numa = xml_.integer(object, "os_index", 0);
      if (cpu.numa < 0) xml_.refuse(object, "os_index is negative");
      const auto keep = [&](const char* fact, const char* name) {
        if (const std::string value = info(package, name); !value.empty()) cpu.facts[fact] = value;
      };
      keep("vendor", "CPUVendor");
      keep("familyid", "CPUFamilyNumber");
      keep("modelid", "CPUModelNumber");
      if (const std::string set = affinity_of(object); !set.empty()) cpu.facts["affinity"] = set;
      if (!arch_.empty()) cpu.facts["arch"] = arch_ == "aarch64" ? "arm64" : arch_;
      for (const auto& other : host_.cpus)
        if (other.numa == cpu.numa) xml_.refuse(object, "is the second of its os_index");
      host_.cpus.push_back(std::move(cpu));
    }
    for (const auto& child : object.children("object")) read_cpus(child, package, depth + 1);
  }

  // hwloc's "0x0000000f,0xffffffff" as the kernel and NCCL write it: "0000000f,ffffffff".
  static std::string affinity_of(const pugi::xml_node& object) {
    std::string set = object.attribute("cpuset").value();
    for (size_t at = 0; (at = set.find("0x", at)) != std::string::npos;) set.erase(at, 2);
    const bool plain = set.find_first_not_of("0123456789abcdef,") == std::string::npos;
    if (!plain || set.size() > 255) set.clear();
    return set;
  }

  // The NUMA node in an object's nodeset ("0x00000002" is node 1), or -1 if there are several.
  static int numa_in(const pugi::xml_node& object) {
    const std::string set = object.attribute("nodeset").value();
    int found = -1, base = 0;
    for (size_t end = set.size(); end > 0;) {  // words of 32 bits, the last one lowest
      const size_t comma = set.rfind(',', end - 1);
      const size_t begin = comma == std::string::npos ? 0 : comma + 1;
      const unsigned long word = std::strtoul(set.substr(begin, end - begin).c_str(), nullptr, 16);
      for (int bit = 0; bit < 32; bit++) {
        if ((word >> bit & 1) == 0) continue;
        if (found >= 0) return -1;
        found = base + bit;
      }
      base += 32;
      end = comma == std::string::npos ? 0 : comma;
    }
    return found;
  }

  struct Place {
    int cpu = -1;  // index, -1: not said
    int parent = -1;
  };

  void read_io(const pugi::xml_node& object, Place place, int depth) {
    if (depth > kDeepestObject) xml_.refuse(object, "is nested too deep");
    const std::string_view type = object.attribute("type").value();
    if (object.attribute("nodeset")) {
      place.cpu = -1;
      const int numa = numa_in(object);
      for (size_t i = 0; i < host_.cpus.size(); i++)
        if (host_.cpus[i].numa == numa) place.cpu = static_cast<int>(i);
    }
    const bool pci = object.attribute("pci_busid") && (type == "Bridge" || type == "PCIDev");
    if (pci) place.parent = read_pci(object, place);
    if (type == "OSDev") read_device(object, place);
    for (const auto& child : object.children("object")) read_io(child, place, depth + 1);
  }

  int read_pci(const pugi::xml_node& object, const Place& place) {
    HostPci pci;
    pci.bus = normal_bus(object.attribute("pci_busid").value());
    pci.parent = place.parent;
    pci.cpu = std::max(0, place.cpu);
    // "0302 [10de:1db8] [10de:131d] a1"
    unsigned kind = 0, vendor = 0, device = 0, subvendor = 0, subdevice = 0;
    std::sscanf(object.attribute("pci_type").value(), "%4x [%4x:%4x] [%4x:%4x]", &kind, &vendor,
                &device, &subvendor, &subdevice);
    if (object.attribute("subtype").value() == std::string_view("NVSwitch")) kind = 0x0680;
    pci.device_class = kind << 8;
    pci.facts = {{"vendor", fmt::format("0x{:04x}", vendor)},
                 {"device", fmt::format("0x{:04x}", device)},
                 {"subsystem_vendor", fmt::format("0x{:04x}", subvendor)},
                 {"subsystem_device", fmt::format("0x{:04x}", subdevice)}};
    pcie_from_nominal(xml_.number(object, "pci_link_speed", 0), pci.gts, pci.width);
    host_.pci.push_back(pci);
    const int index = static_cast<int>(host_.pci.size()) - 1;
    object_[xml_.number(object, "gp_index", -1)] = index;
    // Boards have a small display chip that is no GPU. NVIDIA's always count; AMD's only if they
    // are no display.
    const bool gpu = (kind >> 8 == 0x03 && vendor == 0x10de) ||
                     ((kind == 0x0380 || kind == 0x0302 || kind == 0x1200) && vendor == 0x1002);
    if (gpu) add_gpu(index);
    if (gpu && place.cpu < 0 && host_.cpus.size() > 1)
      host_.notes.push_back(
          fmt::format("{}: NUMA node unknown, taken as {}", pci.bus, host_.cpus[0].numa));
    return index;
  }

  HostGpu& add_gpu(int pci) {
    for (auto& gpu : host_.gpus)
      if (gpu.pci == pci) return gpu;
    HostGpu gpu;
    gpu.pci = pci;
    host_.gpus.push_back(std::move(gpu));
    return host_.gpus.back();
  }

  void read_device(const pugi::xml_node& object, const Place& place) {
    const int kind = xml_.integer(object, "osdev_type", -1);
    const std::string name = object.attribute("name").value();
    object_[xml_.number(object, "gp_index", -1)] = place.parent;
    if (place.parent >= 0 && (name.compare(0, 4, "cuda") == 0 || name.compare(0, 4, "nvml") == 0 ||
                              name.compare(0, 4, "rsmi") == 0)) {
      HostGpu& gpu = add_gpu(place.parent);
      if (name.compare(0, 4, "cuda") != 0) gpu.dev = std::atoi(name.c_str() + 4);
      if (const std::string model = info(object, "GPUModel"); !model.empty()) gpu.model = model;
      if (const std::string uuid = info(object, "NVIDIAUUID"); !uuid.empty())
        gpu.facts["uuid"] = uuid;
    }
    if (kind != 2 && kind != 3) return;
    HostNic nic;
    nic.name = name;
    nic.pci = place.parent;
    nic.cpu = std::max(0, place.cpu);
    if (kind == 3) nic.facts.emplace("port", "1");
    if (const std::string state = info(object, "Port1State"); !state.empty())
      nic.facts["state"] = state;
    if (const std::string guid = info(object, "NodeGUID"); !guid.empty()) nic.facts["guid"] = guid;
    host_.nics.push_back(std::move(nic));
  }

  // One device appears as a network interface and as an RDMA device: the RDMA device is the NIC.
  void name_nics() {
    std::vector<HostNic> kept;
    for (const auto& nic : host_.nics) {
      HostNic* same = nullptr;
      for (auto& other : kept)
        if (nic.pci >= 0 && other.pci == nic.pci) same = &other;
      const bool rdma = nic.facts.count("port") > 0;
      const bool same_rdma = same != nullptr && same->facts.count("port") > 0;
      if (same == nullptr || rdma == same_rdma) {
        kept.push_back(nic);
      } else if (rdma) {
        const std::string interface = same->name;
        *same = nic;
        same->facts["interface"] = interface;
      } else {
        same->facts["interface"] = nic.name;
      }
    }
    host_.nics = std::move(kept);
  }

  static std::vector<std::string> words(const pugi::xml_node& matrix, const char* element) {
    std::vector<std::string> result;
    for (const auto& part : matrix.children(element)) {
      std::istringstream stream(part.text().get());
      for (std::string word; stream >> word && result.size() <= kLargestMatrix * kLargestMatrix;)
        result.push_back(word);
    }
    return result;
  }

  // MB/s between GPUs, NVSwitches and packages.
  void read_matrix(const pugi::xml_node& matrix) {
    if (matrix.attribute("name").value() != std::string_view("NVLinkBandwidth")) return;
    const auto names = words(matrix, "indexes");
    const auto values = words(matrix, "u64values");
    if (names.size() > kLargestMatrix || values.size() != names.size() * names.size())
      xml_.refuse(matrix, fmt::format("{} objects need as many values squared, here are {}",
                                      names.size(), values.size()));
    for (size_t row = 0; row < names.size(); row++) {
      const auto gpu = gpu_named(names[row]);
      if (gpu == host_.gpus.end()) continue;
      HostPci& own = host_.pci[gpu->pci];
      int sm = gpu->sm;
      const auto id = [&](const char* name) {
        return std::strtoul(own.facts[name].c_str(), nullptr, 16);
      };
      if (const auto* device = known_device(id("vendor"), id("device"))) sm = device->sm;
      for (size_t column = 0; column < names.size(); column++) {
        const double gbps =
            std::strtod(values[row * names.size() + column].c_str(), nullptr) / 1000;
        if (row == column || !(gbps > 0) || gbps > 10000) continue;
        HostNvlink link;
        link.count = std::max(1, static_cast<int>(std::lround(gbps / nvlink_nominal_gbps(sm))));
        const std::string& peer = names[column];
        if (peer.compare(0, 8, "Package:") == 0) {
          const auto it = packages_.find(number_of(peer));
          if (it == packages_.end()) continue;
          link.target = fmt::format("cpu{}", it->second);
        } else {
          const auto it = object_.find(number_of(peer));
          if (it == object_.end() || it->second < 0) continue;
          link.target = host_.pci[it->second].bus;
          link.target_class = host_.pci[it->second].device_class;
        }
        gpu->links.push_back(std::move(link));
      }
    }
  }

  static double number_of(const std::string& name) {
    const auto colon = name.find(':');
    return std::strtod(name.c_str() + (colon == std::string::npos ? 0 : colon + 1), nullptr);
  }

  std::vector<HostGpu>::iterator gpu_named(const std::string& name) {
    const auto it = object_.find(number_of(name));
    auto gpu = host_.gpus.begin();
    while (gpu != host_.gpus.end() && (it == object_.end() || gpu->pci != it->second)) ++gpu;
    return gpu;
  }

  XmlFile xml_;
  Host host_;
  std::string arch_;
  std::map<double, int> object_;    // gp_index to index of the PCI device
  std::map<double, int> packages_;  // gp_index to NUMA node
};

}  // namespace

Host host_from_hwloc_xml(std::string_view text, const std::string& where) {
  return HwlocReader(text, where).run();
}

}  // namespace weft
