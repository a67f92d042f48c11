// A libnvidia-ml.so.1 that serves the machine described in WEFT_FAKE_NVML. Each line is one of:
//   init CODE     nvmlInit fails with CODE
//   count CODE    nvmlDeviceGetCount fails
//   gpu BUS SM [mig] [lost] [fabric]
//                 a GPU; lost: it has no handle; fabric: its NVLinks span several hosts
//   link BUS[*N] [switch|hidden|down|broken]
//                 N links of the GPU above
//   nop2p         no GPU reaches another
// It is built twice: as a current driver, and with WEFT_OLD_DRIVER without the newer functions.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct FakeLink {
  std::string bus;
  bool to_switch = false, hidden = false, up = true, broken = false;
};
struct FakeGpu {
  unsigned domain = 0, bus = 0, device = 0;
  int sm = 80, index = 0;
  bool mig = false, lost = false, fabric = false;
  std::vector<FakeLink> links;
};
struct FakeMachine {
  int init = 0, count = 0;
  bool p2p = true;
  std::vector<FakeGpu> gpus;
};

// Streams read numbers by facets. Where this library and the program have a C++ runtime each, they
// take each other's.
int number(std::istream& words) {
  std::string word;
  words >> word;
  return word.empty() ? 0 : std::stoi(word);
}

FakeMachine read_machine() {
  FakeMachine machine;
  const char* text = std::getenv("WEFT_FAKE_NVML");
  std::istringstream lines(text == nullptr ? "" : text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word, bus;
    words >> word;
    if (word == "init") machine.init = number(words);
    if (word == "count") machine.count = number(words);
    if (word == "nop2p") machine.p2p = false;
    if (word == "gpu") {
      FakeGpu gpu;
      words >> bus;
      gpu.sm = number(words);
      std::sscanf(bus.c_str(), "%x:%x:%x", &gpu.domain, &gpu.bus, &gpu.device);
      gpu.index = static_cast<int>(machine.gpus.size());
      while (words >> word) {
        if (word == "mig") gpu.mig = true;
        if (word == "lost") gpu.lost = true;
        if (word == "fabric") gpu.fabric = true;
      }
      machine.gpus.push_back(gpu);
    }
    if (word == "link") {
      words >> bus;
      int count = 1;
      if (const auto star = bus.find('*'); star != std::string::npos) {
        count = std::stoi(bus.substr(star + 1));
        bus.erase(star);
      }
      FakeLink link;
      link.bus = bus;
      while (words >> word) {
        link.to_switch = link.to_switch || word == "switch";
        link.hidden = link.hidden || word == "hidden";
        link.up = link.up && word != "down";
        link.broken = link.broken || word == "broken";
      }
      for (int i = 0; i < count; i++) machine.gpus.back().links.push_back(link);
    }
  }
  return machine;
}

FakeMachine machine;

struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char text[32];
};

void fill(PciInfo* info, unsigned domain, unsigned bus, unsigned device) {
  *info = {};
  info->domain = domain;
  info->bus = bus;
  info->device = device;
  std::snprintf(info->text, sizeof info->text, "%08X:%02X:%02X.0", domain, bus, device);
}

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE int nvmlInit_v2() {
  machine = read_machine();
  return machine.init;
}
FAKE int nvmlShutdown() { return 0; }
FAKE int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(machine.gpus.size());
  return machine.count;
}
FAKE int nvmlDeviceGetHandleByIndex_v2(unsigned index, FakeGpu** gpu) {
  if (index >= machine.gpus.size()) return 2;
  *gpu = &machine.gpus[index];
  return (*gpu)->lost ? 15 : 0;
}
FAKE int nvmlDeviceGetPciInfo_v3(FakeGpu* gpu, PciInfo* info) {
  fill(info, gpu->domain, gpu->bus, gpu->device);
  return 0;
}
FAKE int nvmlDeviceGetName(FakeGpu*, char* text, unsigned size) {
  std::snprintf(text, size, "Fake GPU");
  return 0;
}
FAKE int nvmlDeviceGetUUID(FakeGpu* gpu, char* text, unsigned size) {
  std::snprintf(text, size, "GPU-%04d", gpu->index);
  return 0;
}
FAKE int nvmlDeviceGetCudaComputeCapability(FakeGpu* gpu, int* major, int* minor) {
  *major = gpu->sm / 10;
  *minor = gpu->sm % 10;
  return 0;
}
FAKE int nvmlDeviceGetNvLinkState(FakeGpu* gpu, unsigned link, unsigned* up) {
  if (gpu->links.empty()) return 3;
  if (link >= gpu->links.size()) return 2;
  if (gpu->links[link].broken) return 999;
  *up = gpu->links[link].up ? 1 : 0;
  return 0;
}
FAKE int nvmlDeviceGetNvLinkRemotePciInfo_v2(FakeGpu* gpu, unsigned link, PciInfo* info) {
  const FakeLink& remote = gpu->links[link];
  unsigned domain = 0xfffffff, bus = 0xffff, device = 0xff;
  if (!remote.hidden) std::sscanf(remote.bus.c_str(), "%x:%x:%x", &domain, &bus, &device);
  fill(info, domain, bus, device);
  return 0;
}
#ifndef WEFT_OLD_DRIVER
FAKE int nvmlDeviceGetMinorNumber(FakeGpu* gpu, unsigned* minor) {
  *minor = static_cast<unsigned>(gpu->index);
  return 0;
}
FAKE int nvmlDeviceGetMigMode(FakeGpu* gpu, unsigned* current, unsigned* pending) {
  *current = *pending = gpu->mig ? 1 : 0;
  return 0;
}
struct FabricInfo {
  unsigned char cluster[16];
  int status;
  unsigned clique;
  unsigned char state;
};
FAKE int nvmlDeviceGetGpuFabricInfo(FakeGpu* gpu, FabricInfo* info) {
  *info = {};
  info->cluster[0] = gpu->fabric ? 0xab : 0;
  info->state = 3;
  return 0;
}
FAKE int nvmlDeviceGetMaxPcieLinkGeneration(FakeGpu* gpu, unsigned* generation) {
  *generation = gpu->sm >= 90 ? 5 : 4;
  return 0;
}
FAKE int nvmlDeviceGetMaxPcieLinkWidth(FakeGpu*, unsigned* width) {
  *width = 16;
  return 0;
}
FAKE int nvmlDeviceGetNvLinkVersion(FakeGpu* gpu, unsigned, unsigned* version) {
  *version = gpu->sm >= 90 ? 4 : 3;
  return 0;
}
FAKE int nvmlDeviceGetNvLinkRemoteDeviceType(FakeGpu* gpu, unsigned link, int* type) {
  *type = gpu->links[link].to_switch ? 2 : 0;
  return gpu->links[link].hidden ? 3 : 0;
}
FAKE int nvmlDeviceGetP2PStatus(FakeGpu*, FakeGpu*, int, int* status) {
  *status = machine.p2p ? 0 : 5;
  return 0;
}
#endif
