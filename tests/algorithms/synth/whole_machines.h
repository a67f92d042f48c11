// Short names that the tests of synthesis share.
#pragma once

#include "src/schedule/schedule.h"
#include "src/topology/graph/machine.h"

namespace weft::test {

inline constexpr double kGiB = 1 << 30;

// A collective of all GPUs of a machine.
inline Collective of(const Machine& machine, CollectiveKind kind, int root = 0) {
  return {kind, static_cast<int>(gpus(machine).size()), root};
}

}  // namespace weft::test
