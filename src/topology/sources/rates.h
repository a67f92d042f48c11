// Effective bandwidth (GB/s, one direction) and latency (us) of links, by type, generation and
// width. Real transfers reach these rates; nominal rates are higher. Sources: NCCL's own constants
// and published measurements.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// Per lane and GT/s: 12 GB/s for generation 3 x16.
double pcie_gbps(double gts, int width);
// The GT/s and lanes whose nominal rate (as hwloc reports it, in GB/s) comes closest.
void pcie_from_nominal(double nominal_gbps, double& gts, int& width);
// The same for an effective rate of pcie_gbps(); false if none is within 1%.
bool pcie_from_effective(double gbps, double& gts, int& width);

// One NVLink of a GPU of this compute capability (70, 80, 90...).
double nvlink_gbps(int sm);
// The nominal GB/s of one NVLink; hwloc's matrices use this unit.
double nvlink_nominal_gbps(int sm);
// One xGMI link, by AMD's architecture name ("gfx90a") or number ("910").
double xgmi_gbps(std::string_view arch);
// Between two sockets, from vendor, family and model as NCCL's files give them.
double socket_gbps(std::string_view arch, std::string_view vendor, int family, int model);
// A NIC port of this many Mb/s.
double network_gbps(double mbps);
double network_mbps(double gbps);  // the inverse

constexpr double kNvlinkUs = 0.7;        // GPU to GPU
constexpr double kNvswitchHopUs = 0.35;  // GPU to NVSwitch
constexpr double kXgmiUs = 0.7;
constexpr double kPcieHopUs = 0.5;
constexpr double kSocketUs = 0.5;
constexpr double kC2cUs = 0.5;
constexpr double kInfinibandHopUs = 1.3;  // NIC to network switch
constexpr double kEthernetHopUs = 10;     // through the kernel's sockets

// Model, compute capability and NIC speed of known PCI vendor:device pairs.
struct KnownDevice {
  unsigned vendor, device;
  std::string_view model;
  int sm;
  double mbps;
};
const KnownDevice* known_device(unsigned vendor, unsigned device);

}  // namespace weft
