// The collectives that rankperf times: how each is called, what it leaves, what it must move.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <span>

#include "nccl.h"

namespace weft::perf::rankperf {

struct Call {
  const float* in;
  float* out;
  size_t
      count;  // elements of the whole array, as nccl-tests counts its size; whole blocks per rank
  int ranks;
  ncclComm_t comm;
  cudaStream_t stream;
};

struct Collective {
  const char* name;
  void (*call)(const Call&);
  // Arrays that all ranks together must read and write at least, in device memory.
  double (*arrays_moved)(int ranks);
  size_t (*outputs)(size_t count, int ranks);
  // Element i of a rank's output, given that inputs hold input_value().
  float (*expected)(size_t i, size_t count, int rank, int ranks);
};

// Element i of a rank's input. Sums of up to 2^16 ranks are exact.
__host__ __device__ inline float input_value(size_t i, int rank) {
  return static_cast<float>(i % 97 + static_cast<size_t>(rank) + 1);
}

std::span<const Collective> collectives();

}  // namespace weft::perf::rankperf
