// One API call, checked, before it becomes a Task.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "include/nccl.h"
#include "src/exec/datatype.h"
#include "src/planner/imported_schedules.h"
#include "src/schedule/collective.h"

namespace weft {

struct Irregular;

struct Call {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;   // elements per block
  size_t stride = 0;  // elements from block to block; 0: `count`
  Reduction reduction;
  int root = 0;                   // or the peer of a send or receive
  bool sends = false;             // kSendRecv: which half
  cudaStream_t stream = nullptr;  // GPUs only
  // Words of the caller; nullptr: none. The call begins when `ready` is not 0, and sets `done` to 1
  // when it is complete.
  const uint32_t* ready = nullptr;
  uint32_t* done = nullptr;
  // kAllToAllV: its blocks. Then `count` is what this rank sends, and there are no buffers.
  std::shared_ptr<const Irregular> irregular;

  size_t block() const { return stride == 0 ? count : stride; }
  // Elements from the first to the last of a buffer of so many blocks.
  size_t span(int blocks) const {
    return blocks > 0 ? static_cast<size_t>(blocks - 1) * block() + count : 0;
  }
};

// Bytes of the whole array, as nccl-tests counts them. The choice of a plan depends on this size.
size_t array_bytes(const Collective& c, const Call& call);
// How this rank's input and output overlap in the in-place form of the call.
struct InPlace {
  bool exists = false;
  ptrdiff_t distance = 0;  // bytes from the input to the output

  bool is(const void* input, const void* output) const {
    return exists && input != nullptr && output != nullptr &&
           reinterpret_cast<uintptr_t>(output) - reinterpret_cast<uintptr_t>(input) ==
               static_cast<uintptr_t>(distance);
  }
};
InPlace in_place_form(const Collective& c, const Call& call, int rank);
// The parts of the call that the choice of a plan depends on.
PlanCall plan_call(const Collective& c, const Call& call, int rank, bool captured);

}  // namespace weft
