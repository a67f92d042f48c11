// See host.h. claims.cc and build_machine.cc have correct_claims() and build_machine().
#include "src/topology/sources/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "src/topology/sources/rates.h"

namespace weft {

std::string normal_bus(const std::string& bus) {
  std::string text = bus;
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto colon = text.find(':');
  // NVML writes the domain with eight digits, NCCL and sysfs with four.
  if (colon == 8 && text.compare(0, 4, "0000") == 0) text.erase(0, 4);
  return text;
}

int find_pci(const Host& host, const std::string& bus) {
  for (size_t i = 0; i < host.pci.size(); i++)
    if (host.pci[i].bus == bus) return static_cast<int>(i);
  return -1;
}

int cpu_of_numa(Host& host, int numa) {
  for (size_t i = 0; i < host.cpus.size(); i++)
    if (host.cpus[i].numa == numa) return static_cast<int>(i);
  HostCpu cpu;
  cpu.numa = numa;
  if (!host.cpus.empty()) {
    cpu.facts = host.cpus[0].facts;
    cpu.facts.erase("affinity");
  }
  host.cpus.push_back(std::move(cpu));
  return static_cast<int>(host.cpus.size()) - 1;
}

void adopt_bare_devices(Host& host) {
  std::vector<bool> taken(host.pci.size(), false);
  for (const auto& gpu : host.gpus)
    if (gpu.pci >= 0) taken[gpu.pci] = true;
  for (const auto& nic : host.nics)
    if (nic.pci >= 0) taken[nic.pci] = true;
  int gpus = 0, nics = 0;
  for (size_t i = 0; i < host.pci.size(); i++) {
    const HostPci& pci = host.pci[i];
    if (taken[i]) continue;
    if (pci.device_class >> 16 == 0x03) {
      HostGpu gpu;
      gpu.pci = static_cast<int>(i);
      host.gpus.push_back(std::move(gpu));
      gpus++;
    } else if (pci.device_class >> 16 == 0x02) {
      HostNic nic;
      nic.pci = static_cast<int>(i);
      nic.cpu = pci.cpu;
      nic.name = fmt::format("nic{}", host.nics.size());
      host.nics.push_back(std::move(nic));
      nics++;
    }
  }
  if (gpus + nics > 0)
    host.notes.push_back(
        fmt::format("{} GPUs and {} NICs are known by their PCI devices only (a skeleton file): no "
                    "NVLink is known for these GPUs, NIC speeds are guessed",
                    gpus, nics));
}

}  // namespace weft
