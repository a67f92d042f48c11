// The tuner plugin ABI, as far as it differs between versions. Plain C structs, by the facts of
// NCCL's headers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "include/nccl.h"

namespace weft::tuner {

using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);

// NCCL's numbers of functions, here by CollectiveKind's users.
enum Function : int { kBroadcast, kReduce, kAllGather, kReduceScatter, kAllReduce };

struct NvlDomain {
  int domains, least_ranks, most_ranks;
};
// NCCL's model constants, which plugins may change; ours has none of them.
struct Constants {
  double values[1024];
};

// Costs are rows of kProtocols floats; -1: not to be had.
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
// Version 6 has getChunkSize() at its end, which is not asked: slices are ours to cut.
struct V5 {
  const char* name;
  ncclResult_t (*init)(void** context, uint64_t communicator, size_t ranks, size_t nodes,
                       Logger log, NvlDomain* domain, Constants* constants);
  ncclResult_t (*get)(void* context, int function, size_t bytes, int pipelined, float** costs,
                      int algorithms, int protocols, int registered, int* channels);
  ncclResult_t (*finalize)(void* context);
};

}  // namespace weft::tuner
