// Rules that choose a generator by collective, size and placement, without a selection table.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "algorithms/generators/generators.h"

namespace weft {

// How the ranks reach each other. Equal on all ranks of a communicator.
struct Placement {
  bool one_process = false;  // all ranks share an address space, so data can always be lent
  bool one_host = true;      // all ranks share memory
  // All ranks are GPUs that load and store in each other's memory.
  bool peer_memory = false;
  // All ranks are GPUs that exchange messages: in peer memory, in host memory where a pair of one
  // host has no access, and over the network.
  bool lanes = false;
  bool coded_lanes = false;  // compressed calls run as lanes, others do not
  bool together = false;     // with peer_memory: all ranks share a GPU and an address space
  // GPUs of different hosts, with the channels that kMultiConnection needs.
  bool multi_connection = false;
  bool via_host = false;   // GPUs whose data goes through host memory; a single round is fastest
  bool own_hosts = false;  // no two ranks share a host, so each has its NICs for itself
  // The host of every rank, where kHierarchical can use it; else empty.
  std::vector<int> hosts;
};

// `hosts` if there are several, some rank shares one, and none has too many ranks; else empty.
std::vector<int> hosts_of_hierarchy(std::vector<int> hosts);

// The generator that WEFT_PLAN ("all_reduce=ring,broadcast=tree") asks for; nullptr: none. Throws
// Error if the text is malformed.
const Generator* forced_generator(CollectiveKind kind, const std::string& forced);

// `bytes` is the size of the whole array, as in nccl-tests. Throws Error(ncclInvalidUsage) if the
// forced generator does not support the collective.
const Generator& choose_generator(const Collective& collective, size_t bytes,
                                  const Placement& placement, const Generator* forced);

// For GPUs that reach each other's memory. Small arrays travel in packets. Peers read and write
// large arrays in place.
struct GpuChoice {
  const Generator* generator = nullptr;
  bool packets = false;
};
// `together`: all ranks share a GPU and an address space.
GpuChoice choose_for_gpu(const Collective& collective, size_t bytes, size_t packet_bytes,
                         const Generator* forced, bool together = false);

}  // namespace weft
