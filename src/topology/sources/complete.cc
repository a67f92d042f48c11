// complete() of discover.h.
#include <fmt/format.h>

#include <algorithm>

#include "src/topology/sources/discover.h"

namespace weft {
namespace {

// Adds a device of the live machine to the file's tree, with the bridges above it.
int bring(Host& file, const Host& live, int index) {
  const HostPci& pci = live.pci[index];
  if (const int known = find_pci(file, pci.bus); known >= 0) {
    HostPci& own = file.pci[known];
    if (own.device_class == 0) own.device_class = pci.device_class;
    if (own.gts <= 0) own.gts = pci.gts;
    if (own.width <= 0) own.width = pci.width;
    own.facts.insert(pci.facts.begin(), pci.facts.end());
    return known;
  }
  HostPci copy = pci;
  copy.parent = pci.parent >= 0 ? bring(file, live, pci.parent) : -1;
  copy.cpu = copy.parent >= 0 ? file.pci[copy.parent].cpu
                              : cpu_of_numa(file, live.cpus.empty() ? 0 : live.cpus[pci.cpu].numa);
  file.pci.push_back(std::move(copy));
  return static_cast<int>(file.pci.size()) - 1;
}

}  // namespace

Host complete(Host file, const Host& live) {
  if (file.cpus.empty()) file.cpus = live.cpus;
  if (file.name.empty()) file.name = live.name;
  std::vector<HostGpu> gpus;
  for (const auto& gpu : live.gpus) {
    HostGpu copy = gpu;
    copy.pci = bring(file, live, gpu.pci);
    // The file's facts about this GPU override the driver's.
    for (const auto& said : file.gpus) {
      if (said.pci != copy.pci) continue;
      if (!said.links.empty()) copy.links = said.links;
      if (said.sm > 0) copy.sm = said.sm;
      if (said.c2c_gbps > 0) {
        copy.c2c_gbps = said.c2c_gbps;
        copy.c2c_count = said.c2c_count;
      }
      for (const auto& [name, value] : said.facts) copy.facts[name] = value;
    }
    gpus.push_back(std::move(copy));
  }
  std::vector<HostNic> nics;
  for (const auto& nic : live.nics) {
    HostNic copy = nic;
    if (nic.pci >= 0) copy.pci = bring(file, live, nic.pci);
    copy.cpu = nic.pci >= 0 ? file.pci[copy.pci].cpu
                            : cpu_of_numa(file, live.cpus.empty() ? 0 : live.cpus[nic.cpu].numa);
    for (const auto& said : file.nics) {
      if (said.pci != copy.pci || (copy.pci < 0 && said.name != copy.name)) continue;
      if (said.mbps > 0) copy.mbps = said.mbps;
      for (const auto& [name, value] : said.facts) copy.facts[name] = value;
    }
    nics.push_back(std::move(copy));
  }
  const auto absent = [&](const auto& said, const auto& here) {
    return said.pci >= 0 && std::none_of(here.begin(), here.end(),
                                         [&](const auto& each) { return each.pci == said.pci; });
  };
  for (const auto& said : file.gpus)
    if (absent(said, gpus))
      file.notes.push_back(fmt::format("the file's GPU {} is not here", file.pci[said.pci].bus));
  for (const auto& said : file.nics)
    if (absent(said, nics))
      file.notes.push_back(fmt::format("the file's NIC {} is not here", file.pci[said.pci].bus));
  file.gpus = std::move(gpus);
  file.nics = std::move(nics);
  file.notes.insert(file.notes.end(), live.notes.begin(), live.notes.end());
  // The note about bare PCI devices no longer applies.
  std::erase_if(file.notes, [](const std::string& note) {
    return note.find("(a skeleton file)") != std::string::npos;
  });
  return file;
}

}  // namespace weft
