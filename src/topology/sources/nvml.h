// GPU facts from NVIDIA's management library (NVML): names, UUIDs, NVLinks and their targets, P2P.
// Each call opens the library and closes it again. Drivers of any age work: a function that is
// missing or fails becomes a note.
#pragma once

#include <string>
#include <vector>

#include "src/topology/sources/host.h"

namespace weft {

struct NvmlGpu {
  std::string bus, model, uuid;
  int index = 0;
  int sm = 0;
  int minor = -1;  // of /dev/nvidiaN
  bool mig = false;
  int nvlink_version = 0;
  int links_down = 0;
  std::vector<HostNvlink> links;  // the links that are up
  double gts = 0;
  int width = 0;
  std::string fabric;       // its NVLink domain of several hosts, or ""
  std::vector<int> no_p2p;  // indices of GPUs without P2P access
};

struct NvmlReport {
  bool present = false;  // the library and a driver behind it
  std::vector<NvmlGpu> gpus;
  std::vector<std::string> notes;
};

// Never throws. `library` is a name for dlopen.
NvmlReport read_nvml(const std::string& library);

// Adds NVML's facts to the host's GPUs. Leaves out GPUs that the driver does not show, with a note.
void apply_nvml(Host& host, const NvmlReport& report);

}  // namespace weft
