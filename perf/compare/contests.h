// The collectives that mpi_compare runs through MPI and through the library, on the same data.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "nccl.h"

namespace weft::perf {

struct Job {
  ncclComm_t comm;
  int rank;
  int nranks;
};

// Elements (floats) of the buffers of one rank.
struct Extent {
  size_t count;  // the count argument of the call
  size_t send;
  size_t recv;
};

struct Contest {
  std::string_view name;
  Extent (*extent)(size_t elements, int nranks);
  void (*mpi)(const float* send, float* recv, size_t count);
  ncclResult_t (*weft)(const float* send, float* recv, size_t count, ncclComm_t comm);
  // Element i of the output of a rank.
  float (*expected)(const Job& job, const Extent& extent, size_t i);
};

std::span<const Contest> contests();

// Element i of the input of a rank. They are small integers, so sums are exact.
inline float input_value(int rank, size_t i) {
  return static_cast<float>((static_cast<size_t>(rank) * 31 + i * 7) % 101);
}

}  // namespace weft::perf
