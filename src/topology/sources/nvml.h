// What NVIDIA's management library says about GPUs: names, UUIDs, NVLinks and where they lead, P2P.
// The library is opened when asked and closed again; drivers of any age do, since every function
// that is missing or fails is replaced by a note.
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
  std::vector<HostNvlink> links;  // those that are up
  double gts = 0;
  int width = 0;
  std::string fabric;       // the NVLink domain of several hosts it is a member of, or ""
  std::vector<int> no_p2p;  // indices of GPUs it cannot reach
};

struct NvmlReport {
  bool present = false;  // the library and a driver behind it
  std::vector<NvmlGpu> gpus;
  std::vector<std::string> notes;
};

// Never throws. `library` is a name for dlopen.
NvmlReport read_nvml(const std::string& library);

// Fills the host's GPUs in; GPUs that the driver does not show are left out with a note.
void apply_nvml(Host& host, const NvmlReport& report);

}  // namespace weft
