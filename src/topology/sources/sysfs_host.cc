// See sysfs_host.h; NICs are in sysfs_nics.cc.
#include "src/topology/sources/sysfs_host.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace weft {
namespace {

const std::string kPciDevices = "/sys/bus/pci/devices/";

// "0000:3b:00.0"
bool is_bus(const std::string& word) {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  int used = 0;
  return std::sscanf(word.c_str(), "%x:%x:%x.%x%n", &domain, &bus, &device, &function, &used) ==
             4 &&
         used == static_cast<int>(word.size());
}

void read_processor(HostCpu& cpu, const Sysfs& sysfs) {
  utsname names{};
  uname(&names);
  const std::string arch = names.machine;
  cpu.facts["arch"] = arch == "aarch64" ? "arm64" : arch;
  std::istringstream lines(sysfs.text("/proc/cpuinfo"));
  for (std::string line; std::getline(lines, line) && !line.empty();) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || colon + 2 > line.size()) continue;
    const std::string value = line.substr(std::min(colon + 2, line.size()));
    if (line.compare(0, 9, "vendor_id") == 0) cpu.facts["vendor"] = value;
    if (line.compare(0, 10, "cpu family") == 0) cpu.facts["familyid"] = value;
    if (line.compare(0, 6, "model\t") == 0) cpu.facts["modelid"] = value;
  }
}

void add_device(Host& host, const Sysfs& sysfs, const std::string& bus) {
  HostPci pci;
  pci.bus = bus;
  pci.device_class = static_cast<unsigned>(
      std::strtoul(sysfs.line(kPciDevices + bus + "/class").c_str(), nullptr, 16));
  for (const char* name : {"vendor", "device", "subsystem_vendor", "subsystem_device"})
    if (const std::string value = sysfs.line(kPciDevices + bus + "/" + name); !value.empty())
      pci.facts[name] = value;
  // The path names every bridge above.
  std::istringstream path(sysfs.real(kPciDevices + bus));
  for (std::string part; std::getline(path, part, '/');)
    if (is_bus(part) && part != bus) pci.parent = find_pci(host, part);
  const int numa = static_cast<int>(sysfs.number(kPciDevices + bus + "/numa_node", -1));
  if (pci.parent >= 0) {
    pci.cpu = host.pci[pci.parent].cpu;
  } else if (numa >= 0) {
    pci.cpu = cpu_of_numa(host, numa);
  }
  host.pci.push_back(pci);
  const auto vendor = std::strtoul(pci.facts["vendor"].c_str(), nullptr, 16);
  const unsigned kind = pci.device_class >> 8;
  const bool gpu = (kind >> 8 == 0x03 && vendor == 0x10de) ||
                   ((kind == 0x0380 || kind == 0x0302 || kind == 0x1200) && vendor == 0x1002);
  if (!gpu) return;
  if (numa < 0 && host.cpus.size() > 1)
    host.notes.push_back(bus + ": NUMA node unknown (-1), taken as 0");
  HostGpu device;
  device.pci = static_cast<int>(host.pci.size()) - 1;
  host.gpus.push_back(std::move(device));
}

}  // namespace

Host host_from_sysfs(const Sysfs& sysfs) {
  Host host;
  HostCpu cpu;
  read_processor(cpu, sysfs);
  for (const auto& name : sysfs.list("/sys/devices/system/node")) {
    if (name.compare(0, 4, "node") != 0 || name.size() < 5) continue;
    cpu.numa = std::atoi(name.c_str() + 4);
    cpu.facts["affinity"] = sysfs.line("/sys/devices/system/node/" + name + "/cpumap");
    host.cpus.push_back(cpu);
  }
  if (host.cpus.empty()) {
    cpu.numa = 0;
    host.cpus.push_back(cpu);
  }
  auto devices = sysfs.list("/sys/bus/pci/devices");
  // Bridges have shorter paths than the devices below them.
  std::vector<std::pair<std::string, std::string>> ordered;
  for (const auto& bus : devices) ordered.emplace_back(sysfs.real(kPciDevices + bus), bus);
  std::sort(ordered.begin(), ordered.end());
  for (const auto& [_, bus] : ordered)
    if (is_bus(bus)) add_device(host, sysfs, normal_bus(bus));
  read_link_speeds(host, sysfs);
  return host;
}

void read_link_speeds(Host& host, const Sysfs& sysfs) {
  for (auto& pci : host.pci) {
    const std::string folder = kPciDevices + pci.bus;
    const double gts = sysfs.number(folder + "/max_link_speed", 0);
    const double width = sysfs.number(folder + "/max_link_width", 0);
    if (gts > 0 && gts <= 128) pci.gts = gts;
    // 255 means unknown.
    if (width > 0 && width <= 32)
      pci.width = static_cast<int>(width);
    else if (gts > 0)
      pci.width = 0;
  }
}

std::string gpudirect(const Sysfs& sysfs) {
  if (sysfs.exists("/sys/module/nvidia_peermem") || sysfs.exists("/sys/module/nv_peer_mem") ||
      sysfs.exists("/sys/kernel/mm/memory_peers/nv_mem/version"))
    return "nvidia_peermem";
  // The open kernel modules export dmabuf; RDMA accepts it from kernel 5.12 on.
  if (sysfs.line("/proc/driver/nvidia/version").find("Open Kernel Module") == std::string::npos)
    return "";
  int major = 0, minor = 0;
  if (std::sscanf(sysfs.line("/proc/sys/kernel/osrelease").c_str(), "%d.%d", &major, &minor) != 2)
    return "";
  return major > 5 || (major == 5 && minor >= 12) ? "dmabuf" : "";
}

}  // namespace weft
