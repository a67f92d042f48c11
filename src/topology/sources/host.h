// The unchecked description of one host: the PCI tree, GPUs, NICs and NVLinks as a file or the live
// machine states them. Every source (NCCL XML, hwloc XML, hwloc, NVML, sysfs) fills a Host.
// build_machine() turns it into the graph. Plain data.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

struct HostCpu {  // one NUMA node
  int numa = -1;
  std::map<std::string, std::string> facts;  // affinity, arch, vendor, familyid, modelid
};

struct HostPci {
  std::string bus;            // dddd:bb:dd.f, lower case
  int parent = -1;            // index of the bridge above, always smaller; -1: the CPU itself
  int cpu = 0;                // index
  unsigned device_class = 0;  // 0x060400 bridge, 0x03.... GPU, 0x02.... NIC, 0x068000 NVSwitch
  double gts = 0;             // GT/s per lane, 0: unknown
  int width = 0;              // lanes, 0: unknown
  std::map<std::string, std::string> facts;  // vendor, device, subsystem_vendor, subsystem_device
};

struct HostNvlink {
  std::string target;  // bus id, or "cpuN" for a link into NUMA node N
  int count = 1;
  unsigned target_class = 0;  // 0: unknown
  bool xgmi = false;
};

struct HostGpu {
  int pci = -1;
  int dev = -1, rank = -1, sm = 0;
  std::string model;
  std::vector<HostNvlink> links;
  double c2c_gbps = 0;  // coherent link to the CPU, all lanes together
  int c2c_count = 0;
  std::map<std::string, std::string> facts;  // gdr, uuid, gcn, arch, p2p
};

struct HostNic {
  std::string name;
  int pci = -1;  // -1: on no PCI device
  int cpu = 0;
  double mbps = 0;                           // 0: unknown
  std::map<std::string, std::string> facts;  // dev, port, guid, gdr, maxconn, latency, coll
};

struct Host {
  std::string name;
  std::vector<HostCpu> cpus;
  std::vector<HostPci> pci;
  std::vector<HostGpu> gpus;
  std::vector<HostNic> nics;
  std::vector<std::string> notes;
};

int find_pci(const Host& host, const std::string& bus);
// The index of a NUMA node's cpu; adds it if it is missing.
int cpu_of_numa(Host& host, int numa);

// Makes GPUs and NICs of those that a file lists only as PCI devices (the skeletons that clouds
// ship).
void adopt_bare_devices(Host& host);

// Replaces impossible values by the most plausible ones. Adds a note for each kind.
void correct_claims(Host& host);

// Corrects claims, then builds the graph.
Machine build_machine(Host host);

// Lower case, four-digit domain: "00000000:3B:00.0" gives "0000:3b:00.0".
std::string normal_bus(const std::string& bus);

}  // namespace weft
