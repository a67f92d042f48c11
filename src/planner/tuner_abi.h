// The parts of the tuner plugin ABI that differ between versions. Plain C structs that match NCCL's
// headers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "include/nccl.h"

namespace weft::tuner {

using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);

// NCCL's numbers of functions.
enum Function : int { kBroadcast, kReduce, kAllGather, kReduceScatter, kAllReduce };

struct NvlDomain {
  int domains, least_ranks, most_ranks;
};
// The constants of NCCL's cost model. Plugins may change them; Weft's model has none of them.
struct Constants {
  double values[1024];
};

// Costs are rows of kProtocols floats; -1: not available.
struct V2 {
  const char* name;
  ncclResult_t (*init)(size_t ranks, size_t nodes, Logger log, void** context);
  ncclResult_t (*get)(void* context, int function, size_t bytes, int collnet, int nvls,
                      int pipelined, int* algorithm, int* protocol, int* channels);
  ncclResult_t (*destroy)(void* context);
};
struct V3 {
  const char* name;
  ncclResult_t (*init)(size_t ranks, size_t nodes, Logger log, void** context);
  ncclResult_t (*get)(void* context, int function, size_t bytes, int pipelined, float** costs,
                      int algorithms, int protocols, int* channels);
  ncclResult_t (*destroy)(void* context);
};
struct V4 {
  const char* name;
  ncclResult_t (*init)(size_t ranks, size_t nodes, Logger log, void** context);
  ncclResult_t (*get)(void* context, int function, size_t bytes, int pipelined, float** costs,
                      int algorithms, int protocols, int registered, int* channels);
  ncclResult_t (*destroy)(void* context);
};
// Version 6 also has getChunkSize() at its end. Weft does not call it, because it sets its own
// slices.
struct V5 {
  const char* name;
  ncclResult_t (*init)(void** context, uint64_t communicator, size_t ranks, size_t nodes,
                       Logger log, NvlDomain* domain, Constants* constants);
  ncclResult_t (*get)(void* context, int function, size_t bytes, int pipelined, float** costs,
                      int algorithms, int protocols, int registered, int* channels);
  ncclResult_t (*finalize)(void* context);
};

}  // namespace weft::tuner
