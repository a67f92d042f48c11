// Which generator for which collective and size: a first, simple choice by rules of thumb.
#pragma once

#include <cstddef>
#include <string>

#include "algorithms/generators/generators.h"

namespace weft {

// What the choice depends on besides the call. Equal on all ranks of a communicator.
struct Placement {
  bool one_process = false;  // all ranks share an address space: data can always be lent
  bool one_host = true;      // all ranks share memory
  // All ranks are GPUs that load and store in each other's memory.
  bool peer_memory = false;
  bool together = false;  // with peer_memory: they share a GPU and an address space
  // GPUs of different hosts that have the channels kMultiConnection needs.
  bool multi_connection = false;
  bool via_host = false;   // GPUs whose data goes through host memory: a single round is fastest
  bool own_hosts = false;  // no two ranks share one: a host sends what its rank does, no more
};

// The generator that WEFT_PLAN ("all_reduce=ring,broadcast=tree") asks for, nullptr if none. Throws
// on a bad text.
const Generator* forced_generator(CollectiveKind kind, const std::string& forced);

// `bytes` is the size of the whole array, as in nccl-tests. A forced generator that does not
// support the collective throws Error(ncclInvalidUsage).
const Generator& choose_generator(const Collective& collective, size_t bytes,
                                  const Placement& placement, const Generator* forced);

// On GPUs that reach each other's memory: small arrays go through FIFOs with flags beside the data,
// large ones are read and written where they are.
struct GpuChoice {
  const Generator* generator = nullptr;
  bool packets = false;
};
// `together`: all ranks share a GPU and an address space.
GpuChoice choose_for_gpu(const Collective& collective, size_t bytes, size_t packet_bytes,
                         const Generator* forced, bool together = false);

}  // namespace weft
