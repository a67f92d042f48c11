// The hosts of a communicator's ranks. Every host describes itself once, and rank 0 merges the
// descriptions.
#pragma once

#include <string>
#include <vector>

#include "src/comm/peer_info.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct HostReport {
  int cores = 1;        // usable by the process that describes the host
  double nic_gbps = 0;  // all NICs together; 0: unknown
  Machine machine;
};

// This host, as text for rank 0. A process inspects its host once and keeps the text.
// `hidden_gpus`: also the GPUs that CUDA_VISIBLE_DEVICES hides from this process, where other ranks
// may be.
std::string describe_host(const Config& config, bool hidden_gpus = false);
// A number that is equal for processes that see the same devices and links.
uint64_t view_of_host(const Config& config);
// Reads the text of describe_host(). Throws Error if it is malformed.
HostReport read_host_report(const std::string& text, int rank);

struct Cluster {
  std::vector<int> host_of;  // per rank; hosts are numbered from 0 by their lowest rank
  std::vector<HostReport> hosts;
  Machine machine;  // all hosts joined
};

// The host of every rank, numbered from 0 by their lowest rank.
std::vector<int> host_numbers(const std::vector<PeerInfo>& infos);
// The ranks that describe their hosts: the lowest rank of each host, and the lowest rank with each
// other view of it.
std::vector<int> host_speakers(const std::vector<PeerInfo>& infos);
// `texts` has one entry per rank: the speakers' descriptions, and empty texts for the other ranks.
Cluster merge_hosts(const std::vector<PeerInfo>& infos, const std::vector<std::string>& texts);

// Writes a GPU for every rank of a pipeline or ring, as a number in the machine's order. `topo` is
// a value of WEFT_TOPO; nullptr: this machine.
void advise_placement(const char* topo, int nranks, bool ring, int* gpus);

}  // namespace weft
