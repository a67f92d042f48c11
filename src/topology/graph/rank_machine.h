// The part of a machine that the ranks of a communicator use. Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

// Where the ranks are, as they say themselves. Without ids, ranks go to the GPUs in turn.
struct RankPlaces {
  std::span<const std::string> ids;  // PCI bus id per rank
  std::span<const int> hosts;        // host per rank; empty: ids are unique in the machine
};

// The node of every rank's GPU. Empty if the machine lacks one of them.
std::vector<int> gpus_of_ranks(const Machine& machine, const RankPlaces& places, int nranks);

// Whether no two ranks share a GPU. False without GPUs.
bool each_has_a_gpu(std::span<const int> gpus);

// The machine with only these GPUs, in this order, so rank r is GPU number r. No two may be the
// same. Links of other GPUs are left out: nobody runs there who could pass data on.
Machine reduce_to(const Machine& machine, std::span<const int> gpus);

// The machine as kernels see it that use peer memory.
// - Drivers take NVLink for it where a pair has that, and PCIe beside it cannot be asked for. So
//   PCIe links of GPUs are left out on a single host where every pair has NVLink or xGMI.
// - Peer memory ends at the host. So each host has its own part of NVSwitches that join several
//   hosts, and what GPUs send to other hosts takes the network. If the machine is written down
//   without one, a switch joins its NICs.
Machine peer_ways(const Machine& machine);

// Whether NVLink or xGMI joins GPUs of different hosts, which peer_ways() leaves out.
bool links_hosts(const Machine& machine);

// Joins what several processes of one host see of it. A container may show each process other
// devices. Devices are the same if they have the same bus id. Of processes that see different links
// between the same devices, the first counts, and a note has kOtherLinks.
inline constexpr const char* kOtherLinks = "see different links between the same devices";
Machine unite_views(const std::vector<Machine>& views);

}  // namespace weft
