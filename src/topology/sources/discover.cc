// See discover.h.
#include "src/topology/sources/discover.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <exception>

#include "src/base/config.h"
#include "src/base/log.h"
#include "src/base/regular_file.h"
#include "src/topology/formats/hwloc_xml.h"
#include "src/topology/formats/nccl_xml.h"
#include "src/topology/formats/read_machine.h"
#include "src/topology/sources/nvml.h"
#include "src/topology/sources/sysfs_host.h"
#include "src/topology/sources/visibility.h"

namespace weft {
namespace {

constexpr const char* kVirtualTopology = "/var/run/nvidia-topologyd/virtualTopology.xml";

// The PCI tree and the NUMA nodes.
Host tree_of(const Discovery& how, const Sysfs& sysfs) {
  std::string why_not, xml = how.hwloc_xml;
  if (xml.empty() && how.hwloc != nullptr && how.root.empty()) xml = how.hwloc(why_not);
  if (!xml.empty()) {
    try {
      Host host = host_from_hwloc_xml(xml, "hwloc");
      host.name.clear();
      read_link_speeds(host, sysfs);
      return host;
    } catch (const std::exception& error) {
      why_not = error.what();
    }
  }
  Host host = host_from_sysfs(sysfs);
  if (!why_not.empty()) host.notes.push_back(why_not + kWithoutHwloc);
  return host;
}

Host look(const Discovery& how) {
  const Sysfs sysfs(how.root);
  Host host = tree_of(how, sysfs);
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) == 0) host.name = name.data();
  const NvmlReport report = read_nvml(how.nvml);
  if (!report.present && !host.gpus.empty())
    host.notes.push_back("no NVIDIA driver answers: NVLink between GPUs is unknown");
  apply_nvml(host, report);
  if (report.present) apply_device_files(host, sysfs);
  if (const char* visible = secure_getenv("CUDA_VISIBLE_DEVICES");
      visible != nullptr && report.present && !how.hidden_gpus) {
    const char* order = secure_getenv("CUDA_DEVICE_ORDER");
    apply_visible_devices(host, visible, order != nullptr && std::string(order) == "PCI_BUS_ID");
  }
  read_nics(host, sysfs);
  const std::string direct(1, gpudirect(sysfs).empty() ? '0' : '1');
  for (auto& gpu : host.gpus) gpu.facts.insert_or_assign("gdr", direct);
  return host;
}

Machine from_file(const std::string& path, const Discovery& how) {
  const std::string text = read_text_file(path);
  // Only NCCL's own format is a skeleton; other files describe the whole machine.
  if (text.find("<system") == std::string::npos) return parse_machine(text, path);
  Host file = host_from_nccl_xml(text, path);
  return build_machine(complete(std::move(file), discover_host(how)));
}

}  // namespace

Host discover_host(const Discovery& how) noexcept {
  try {
    return look(how);
  } catch (const std::exception& error) {
    Host host;
    host.cpus.push_back({0, {}});
    try {
      host.notes.push_back(fmt::format("this machine cannot be looked at: {}", error.what()));
    } catch (...) {
      return host;
    }
    return host;
  }
}

Machine this_machine(const Discovery& how) noexcept {
  Machine machine;
  try {
    const Config config = Config::from_environment();
    std::string path = config.topo_file, trouble;
    const Sysfs sysfs(how.root);
    if (path.empty() && sysfs.exists(kVirtualTopology)) path = how.root + kVirtualTopology;
    if (!path.empty()) {
      try {
        machine = from_file(path, how);
        machine.notes.insert(machine.notes.begin(), "described by " + path);
        return machine;
      } catch (const std::exception& error) {
        trouble = error.what();
      }
    }
    machine = build_machine(discover_host(how));
    if (!trouble.empty()) {
      machine.notes.insert(machine.notes.begin(), trouble + " (the file is not used)");
      WEFT_WARN("{} (the file is not used)", trouble);
    }
  } catch (const std::exception& error) {
    try {
      machine.notes.push_back(fmt::format("this machine cannot be described: {}", error.what()));
    } catch (...) {
      return machine;
    }
  }
  return machine;
}

void dump_machine(const Machine& machine, int rank) noexcept {
  try {
    const Config config = Config::from_environment();
    if (config.topo_dump_file.empty() || rank != config.topo_dump_rank) return;
    write_whole_file(config.topo_dump_file, machine_to_nccl_xml(machine));
  } catch (const std::exception& error) {
    try {
      WEFT_WARN("the topology cannot be dumped: {}", error.what());
    } catch (...) {
      return;
    }
  }
}

}  // namespace weft
