// What ncclCommMemStats says.
#pragma once

#include <cstdint>

#include "nccl.h"
#include "tests/support/threads.h"

namespace weft::test {

inline uint64_t statistic(ncclComm_t comm, ncclCommMemStat_t which) {
  uint64_t value = 12345;
  WEFT_OK(ncclCommMemStats(comm, which, &value));
  return value;
}

}  // namespace weft::test
