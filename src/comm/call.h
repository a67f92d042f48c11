// One API call, checked, before it becomes a Task.
#pragma once

#include <cstddef>

#include "include/nccl.h"
#include "src/exec/datatype.h"
#include "src/planner/imported_schedules.h"
#include "src/schedule/collective.h"

namespace weft {

struct Call {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;  // elements per block
  Reduction reduction;
  int root = 0;                   // or the peer of a send or receive
  bool sends = false;             // kSendRecv: which half
  cudaStream_t stream = nullptr;  // GPUs only
};

// Bytes of the whole array, as nccl-tests counts them. The choice of a plan depends on this size.
size_t array_bytes(const Collective& c, const Call& call);
// Whether this rank's input and output overlap as in the in-place form of the collective.
bool is_in_place(const Collective& c, const Call& call, int rank);
// The parts of the call that the choice of a plan depends on.
PlanCall plan_call(const Collective& c, const Call& call, int rank, bool captured);

}  // namespace weft
