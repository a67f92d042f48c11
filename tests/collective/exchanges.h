// Random exchanges of blocks of different lengths: as weftAllToAllv, or as sends and receives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nccl.h"

namespace weft::test {

struct Exchange {
  int nranks = 1;
  std::vector<size_t> counts;  // [from * nranks + to], in elements
  ncclDataType_t type = ncclInt32;
  size_t gap = 0;  // elements between blocks; 0: displacements are NULL
  int parts = 1;
  bool messages = false;   // a group of sends and receives
  bool allocated = false;  // ncclMemAlloc
  uint64_t salt = 0;

  size_t count(int from, int to) const {
    return counts[static_cast<size_t>(from) * static_cast<size_t>(nranks) +
                  static_cast<size_t>(to)];
  }
};

Exchange random_exchange(int nranks, uint64_t seed);

// "" or the error: a result code, wrong data, or a write outside of the blocks.
std::string run_exchange(const Exchange& exchange, int rank, ncclComm_t comm);

}  // namespace weft::test
