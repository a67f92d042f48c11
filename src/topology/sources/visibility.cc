// See visibility.h.
#include "src/topology/sources/visibility.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace weft {
namespace {

std::string uuid_of(const HostGpu& gpu) {
  const auto it = gpu.facts.find("uuid");
  return it == gpu.facts.end() ? "" : it->second;
}

}  // namespace

void apply_device_files(Host& host, const Sysfs& sysfs) {
  std::erase_if(host.gpus, [&](const HostGpu& gpu) {
    const auto minor = gpu.facts.find("minor");
    if (minor == gpu.facts.end()) return false;
    const std::string file = "/dev/nvidia" + minor->second;
    if (sysfs.exists(file)) return false;
    host.notes.push_back(fmt::format("{}: left out, there is no {} here (a container without it?)",
                                     host.pci[gpu.pci].bus, file));
    return true;
  });
}

void apply_visible_devices(Host& host, const std::string& visible, bool ordered_by_bus) {
  std::vector<HostGpu> chosen;
  std::vector<bool> used(host.gpus.size(), false);
  const bool mixed = std::any_of(host.gpus.begin(), host.gpus.end(), [&](const HostGpu& gpu) {
    return gpu.model != host.gpus[0].model;
  });
  std::istringstream list(visible);
  for (std::string word; std::getline(list, word, ',');) {
    std::erase(word, ' ');
    size_t found = host.gpus.size();
    const bool number = !word.empty() && word.size() < 6 &&
                        word.find_first_not_of("0123456789") == std::string::npos;
    for (size_t i = 0; i < host.gpus.size(); i++) {
      const bool by_uuid = word.compare(0, 4, "GPU-") == 0 &&
                           uuid_of(host.gpus[i]).compare(0, word.size(), word) == 0;
      if (by_uuid || (number && host.gpus[i].dev == std::stoi(word))) found = i;
    }
    if (word.compare(0, 4, "MIG-") == 0) {
      host.notes.push_back("CUDA_VISIBLE_DEVICES names a MIG instance: the whole GPU is not ours");
      continue;
    }
    if (found == host.gpus.size() || used[found]) break;  // CUDA stops here too
    used[found] = true;
    HostGpu gpu = host.gpus[found];
    gpu.rank = static_cast<int>(chosen.size());
    chosen.push_back(std::move(gpu));
  }
  if (mixed && !ordered_by_bus)
    host.notes.emplace_back(
        "GPUs differ and CUDA_DEVICE_ORDER is not PCI_BUS_ID: CUDA may number them otherwise");
  if (chosen.size() < host.gpus.size())
    host.notes.push_back(fmt::format("CUDA_VISIBLE_DEVICES={} leaves {} of {} GPUs", visible,
                                     chosen.size(), host.gpus.size()));
  host.gpus = std::move(chosen);
}

}  // namespace weft
