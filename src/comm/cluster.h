// The cluster as a communicator's ranks see it: every host describes itself once, rank 0 merges.
#pragma once

#include <string>
#include <vector>

#include "src/comm/peer_info.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct HostReport {
  int cores = 1;        // that this process may use
  double nic_gbps = 0;  // all NICs together; 0: unknown
  Machine machine;
};

// This host, as text for rank 0. Looked at once per process.
std::string describe_host(const Config& config);
// Throws Error where the text is something else.
HostReport read_host_report(const std::string& text, int rank);

struct Cluster {
  std::vector<int> host_of;  // per rank, numbered from 0 in the order of their first ranks
  std::vector<HostReport> hosts;
  Machine machine;  // all hosts joined
};

// Ranks that speak for their hosts: the lowest of each.
std::vector<int> host_leaders(const std::vector<PeerInfo>& infos);
// `texts` has the leaders' descriptions, in rank order, others empty.
Cluster merge_hosts(const std::vector<PeerInfo>& infos, const std::vector<std::string>& texts);

// GPUs (numbers in the machine's order) for the ranks of a pipeline or ring. `topo` is what
// WEFT_TOPO takes; nullptr: this machine.
void advise_placement(const char* topo, int nranks, bool ring, int* gpus);

}  // namespace weft
