// What host mode has worked out for calls of one shape: their plan, their cuts and their ports. The
// next call of that shape only adds its buffers. Working it out took a quarter of a call of 8
// bytes.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "src/comm/call.h"
#include "src/comm/lowered_plans.h"
#include "src/exec/operation.h"

namespace weft {

// Everything of a call but its buffers, of which only the distance counts.
struct CallShape {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  bool sends = false;
  int root = 0;
  size_t count = 0;
  size_t stride = 0;
  Reduction reduction;

  static CallShape of(const Call& call) {
    return {call.kind, call.sends, call.root, call.count, call.stride, call.reduction};
  }
  bool fits(const Call& call) const {
    return count == call.count && kind == call.kind && root == call.root && sends == call.sends &&
           stride == call.stride && reduction == call.reduction;
  }
};

struct PreparedCall {
  CallShape shape;
  uint64_t choices = 0;  // PlanChooser::changes() at its choice; 0: this is empty
  InPlace place;
  bool in_place = false;
  Choice choice;
  const LoweredPlan* plan = nullptr;  // nullptr: a send or a receive, or helped
  const Program* program = nullptr;   // nullptr: helped
  size_t scratch_bytes = 0;
  bool finds_segments = false;  // its messages may carry addresses of shared memory
  Operation operation;          // without buffers, scratch memory and number
  std::vector<SendPort*> sends;
  std::vector<RecvPort*> receives;

  bool serves(const Call& call, uint64_t changes) const {
    return choices == changes && shape.fits(call) && in_place == place.is(call.input, call.output);
  }
};

// For one thread. A call always has the same place, so calls may drive each other out.
class PreparedCalls {
 public:
  PreparedCall& place_of(const Call& call) {
    const size_t mixed =
        (call.count * 4 + static_cast<size_t>(call.kind)) * 0x9e3779b97f4a7c15u +
        (static_cast<size_t>(call.root) * 2 + (call.sends ? 1 : 0)) * 0x100000001b3u;
    return places_[mixed >> (64 - kBits)];
  }

 private:
  static constexpr int kBits = 5;
  std::array<PreparedCall, size_t{1} << kBits> places_;
};

}  // namespace weft
