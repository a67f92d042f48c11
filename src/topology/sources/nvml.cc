// See nvml.h.
#include "src/topology/sources/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "src/topology/sources/rates.h"

namespace weft {
namespace {

// The part of NVML's interface that this file uses. Declared here, so the build needs no driver
// headers.
using Result = int;
using Device = struct OpaqueDevice*;
constexpr Result kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3;
constexpr unsigned kMostLinks = 36;
constexpr int kRemoteGpu = 0, kRemoteNpu = 1, kRemoteSwitch = 2;
constexpr int kP2pRead = 0;

struct PciInfo {
  char legacy_bus[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

struct FabricInfo {
  unsigned char cluster[16];
  Result status;
  unsigned clique;
  unsigned char state;  // 3: a member
};
constexpr unsigned char kFabricMember = 3;

class Library {
 public:
  explicit Library(const std::string& name)
      : handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL), close) {}
  bool loaded() const { return handle_ != nullptr; }

  // Calls the first function that the library has; newer names come first.
  template <typename... Args>
  Result call(std::initializer_list<const char*> names, Args... args) const {
    for (const char* name : names)
      if (void* symbol = dlsym(handle_.get(), name))
        return reinterpret_cast<Result (*)(Args...)>(symbol)(args...);
    return kMissing;
  }

  static constexpr Result kMissing = -1;

 private:
  static void close(void* handle) {
    if (handle != nullptr) dlclose(handle);
  }
  std::unique_ptr<void, void (*)(void*)> handle_;
};

std::string why(Result result) {
  switch (result) {
    case Library::kMissing:
      return "this driver does not have the function";
    case kInvalidArgument:
      return "invalid argument";
    case kNotSupported:
      return "not supported";
    case 4:
      return "no permission";
    case 9:
      return "the driver is not loaded";
    case 12:
      return "a library is missing";
    case 13:
      return "the driver lacks the function";
    case 15:
      return "the GPU has fallen off the bus";
    case 18:
      return "driver and library differ in version";
    default:
      return fmt::format("NVML error {}", result);
  }
}

std::string short_bus(const PciInfo& info) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", info.domain, info.bus, info.device);
}

class NvmlReader {
 public:
  explicit NvmlReader(const Library& library) : library_(library) {}

  NvmlReport run() {
    unsigned count = 0;
    if (const Result result =
            library_.call({"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"}, &count);
        result != kSuccess) {
      report_.notes.push_back("NVML cannot count GPUs: " + why(result));
      return std::move(report_);
    }
    report_.present = true;
    for (unsigned i = 0; i < std::min(count, 1024u); i++) read_gpu(i);
    read_p2p();
    return std::move(report_);
  }

 private:
  void read_gpu(unsigned index) {
    Device device = nullptr;
    Result result = library_.call({"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"},
                                  index, &device);
    PciInfo pci{};
    if (result == kSuccess)
      result = library_.call({"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"}, device, &pci);
    if (result != kSuccess) {
      report_.notes.push_back(fmt::format("GPU {} of NVML is left out: {}", index, why(result)));
      return;
    }
    NvmlGpu gpu;
    gpu.index = static_cast<int>(index);
    gpu.bus = short_bus(pci);
    std::array<char, 128> text{};
    const auto size = static_cast<unsigned>(text.size() - 1);
    if (library_.call({"nvmlDeviceGetName"}, device, text.data(), size) == kSuccess)
      gpu.model = text.data();
    if (library_.call({"nvmlDeviceGetUUID"}, device, text.data(), size) == kSuccess)
      gpu.uuid = text.data();
    int major = 0, minor = 0;
    if (library_.call({"nvmlDeviceGetCudaComputeCapability"}, device, &major, &minor) == kSuccess)
      gpu.sm = major * 10 + minor;
    unsigned number = 0, pending = 0;
    if (library_.call({"nvmlDeviceGetMinorNumber"}, device, &number) == kSuccess)
      gpu.minor = static_cast<int>(number);
    if (library_.call({"nvmlDeviceGetMigMode"}, device, &number, &pending) == kSuccess)
      gpu.mig = number == 1;
    constexpr double kSpeeds[] = {0, 2.5, 5, 8, 16, 32, 64};
    if (library_.call({"nvmlDeviceGetMaxPcieLinkGeneration"}, device, &number) == kSuccess &&
        number < std::size(kSpeeds))
      gpu.gts = kSpeeds[number];
    if (library_.call({"nvmlDeviceGetMaxPcieLinkWidth"}, device, &number) == kSuccess &&
        number <= 32)
      gpu.width = static_cast<int>(number);
    FabricInfo fabric{};
    if (library_.call({"nvmlDeviceGetGpuFabricInfo"}, device, &fabric) == kSuccess &&
        fabric.state == kFabricMember && fabric.status == kSuccess) {
      std::string cluster;
      for (const unsigned char byte : fabric.cluster) cluster += fmt::format("{:02x}", byte);
      // All zeros: a fabric of this host alone.
      if (cluster.find_first_not_of('0') != std::string::npos)
        gpu.fabric = fmt::format("{}.{}", cluster, fabric.clique);
    }
    read_links(device, gpu);
    devices_.push_back(device);
    report_.gpus.push_back(std::move(gpu));
  }

  void read_links(Device device, NvmlGpu& gpu) {
    for (unsigned link = 0; link < kMostLinks; link++) {
      unsigned up = 0;
      const Result state = library_.call({"nvmlDeviceGetNvLinkState"}, device, link, &up);
      if (state == kInvalidArgument) break;  // no more links
      if (state != kSuccess) {
        if (state != kNotSupported && link == 0)
          report_.notes.push_back(
              fmt::format("{}: NVLinks cannot be read: {}", gpu.bus, why(state)));
        if (link == 0) break;
        continue;
      }
      if (up == 0) {
        gpu.links_down++;
        continue;
      }
      unsigned version = 0;
      if (library_.call({"nvmlDeviceGetNvLinkVersion"}, device, link, &version) == kSuccess)
        gpu.nvlink_version = static_cast<int>(version);
      add_link(device, link, gpu);
    }
  }

  void add_link(Device device, unsigned link, NvmlGpu& gpu) {
    PciInfo remote{};
    HostNvlink found;
    const Result result =
        library_.call({"nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo"},
                      device, link, &remote);
    // Virtual machines hide the other end.
    const bool hidden = result != kSuccess || remote.domain > 0xffff || remote.bus > 0xff;
    found.target = hidden ? "fffffff:ffff:ff" : short_bus(remote);
    int kind = -1;
    if (library_.call({"nvmlDeviceGetNvLinkRemoteDeviceType"}, device, link, &kind) == kSuccess) {
      if (kind == kRemoteGpu) found.target_class = 0x030200;
      if (kind == kRemoteSwitch) found.target_class = 0x068000;
      if (kind == kRemoteNpu) found.target = "cpu";
    }
    for (auto& other : gpu.links) {
      if (other.target != found.target) continue;
      other.count++;
      return;
    }
    gpu.links.push_back(std::move(found));
  }

  void read_p2p() {
    for (size_t a = 0; a < devices_.size(); a++) {
      for (size_t b = 0; b < devices_.size(); b++) {
        if (a == b) continue;
        int status = 0;
        const Result result =
            library_.call({"nvmlDeviceGetP2PStatus"}, devices_[a], devices_[b], kP2pRead, &status);
        if (result == Library::kMissing) return;
        if (result == kSuccess && status != 0)
          report_.gpus[a].no_p2p.push_back(report_.gpus[b].index);
      }
    }
  }

  const Library& library_;
  NvmlReport report_;
  std::vector<Device> devices_;
};

}  // namespace

NvmlReport read_nvml(const std::string& name) {
  const Library library(name);
  NvmlReport report;
  if (!library.loaded()) return report;
  const Result started = library.call({"nvmlInit_v2", "nvmlInit"});
  if (started != kSuccess) {
    report.notes.push_back(fmt::format("{} does not start: {}", name, why(started)));
    return report;
  }
  report = NvmlReader(library).run();
  library.call({"nvmlShutdown"});
  return report;
}

void apply_nvml(Host& host, const NvmlReport& report) {
  host.notes.insert(host.notes.end(), report.notes.begin(), report.notes.end());
  if (!report.present) return;
  std::vector<HostGpu> gpus;
  for (const auto& nvml : report.gpus) {
    HostGpu gpu;
    gpu.pci = find_pci(host, nvml.bus);
    if (gpu.pci < 0) {
      HostPci pci;
      pci.bus = nvml.bus;
      pci.device_class = 0x030200;
      pci.facts["vendor"] = "0x10de";
      host.pci.push_back(std::move(pci));
      gpu.pci = static_cast<int>(host.pci.size()) - 1;
      host.notes.push_back(
          fmt::format("{}: not on this machine's PCI tree, taken as below NUMA node {}", nvml.bus,
                      host.cpus.empty() ? 0 : host.cpus[0].numa));
    }
    HostPci& pci = host.pci[gpu.pci];
    if (nvml.gts > 0) pci.gts = nvml.gts;
    if (nvml.width > 0) pci.width = nvml.width;
    gpu.dev = nvml.index;
    gpu.sm = nvml.sm;
    gpu.model = nvml.model;
    if (!nvml.uuid.empty()) gpu.facts["uuid"] = nvml.uuid;
    if (nvml.minor >= 0) gpu.facts["minor"] = std::to_string(nvml.minor);
    if (nvml.nvlink_version > 0) gpu.facts["nvlink"] = std::to_string(nvml.nvlink_version);
    if (!nvml.fabric.empty()) gpu.facts["fabric"] = nvml.fabric;
    gpu.links = nvml.links;
    for (auto& link : gpu.links)
      if (link.target == "cpu")
        link.target = fmt::format("cpu{}", host.cpus.empty() ? 0 : host.cpus[pci.cpu].numa);
    if (nvml.links_down > 0)
      host.notes.push_back(fmt::format("{}: {} NVLinks are down", nvml.bus, nvml.links_down));
    if (nvml.mig) {
      gpu.facts["mig"] = "1";
      gpu.facts["p2p"] = "0";
      if (!gpu.links.empty())
        host.notes.push_back(nvml.bus + ": in MIG mode, whose instances cannot use NVLink");
      gpu.links.clear();
    }
    const size_t others = report.gpus.size() - 1;
    if (!nvml.no_p2p.empty() && nvml.no_p2p.size() == others && gpu.links.empty()) {
      gpu.facts["p2p"] = "0";
      host.notes.push_back(nvml.bus +
                           ": the driver allows no peer-to-peer access to any other GPU");
    } else if (!nvml.no_p2p.empty() && nvml.no_p2p.size() < others) {
      host.notes.push_back(fmt::format("{}: no peer-to-peer access to {} of {} GPUs", nvml.bus,
                                       nvml.no_p2p.size(), others));
    }
    gpus.push_back(std::move(gpu));
  }
  for (const auto& old : host.gpus) {
    const HostPci& pci = host.pci[old.pci];
    const bool nvidia = pci.facts.count("vendor") > 0 && pci.facts.at("vendor") == "0x10de";
    const bool seen = std::any_of(gpus.begin(), gpus.end(),
                                  [&](const HostGpu& each) { return each.pci == old.pci; });
    if (seen) continue;
    if (!nvidia)
      gpus.push_back(old);
    else
      host.notes.push_back(pci.bus + ": left out, the driver does not show this GPU");
  }
  host.gpus = std::move(gpus);
}

}  // namespace weft
