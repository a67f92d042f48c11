// A Program: one rank's part of a VerifiedSchedule as flat arrays, the same bytes for host and
// device.
#pragma once

#include <cstdint>
#include <vector>

#include "src/schedule/collective.h"
#include "src/schedule/program_view.h"

namespace weft {

// Between GPUs that do not reach each other, a program that is a single round of messages
// (exec/one_round_shape.h) has a kernel of its own as long as none is larger, or than a slice.
// Planners count on it.
inline constexpr uint64_t kMostOneRoundBytes = 64 << 10;

struct Program {
  Collective collective;
  int32_t rank = 0;
  int32_t chunks = 1;
  int32_t scratch_chunks = 0;
  int32_t max_step_chunks = 1;  // most chunks one message carries
  int32_t fifo_depth = 2;       // messages that FIFOs must hold
  bool reaches_memory =
      false;  // has tokens, or operands in peers' memory: only some executors can run it
  bool partial_sums = false;  // sums of some ranks only are stored or sent on the way (by any rank)
  // Ranks that can reach all memory do the same with neighbouring chunks, n of them in every step,
  // from inputs to outputs and between two meetings: it does not matter which of them does what.
  bool in_step = false;
  bool uniform_only = false;  // right only when the count divides by `chunks`
  std::vector<ProgramLane> lanes;
  std::vector<ProgramStep> steps;
  std::vector<ProgramOperand> operands;
  std::vector<ProgramDependency> dependencies;
  std::vector<ProgramPort> receives, sends;

  // Whether this rank sends part of a broadcast in which ranks pass on what they get.
  bool is_passed_on() const {
    const bool to_everyone =
        rank == collective.root && static_cast<int32_t>(sends.size()) == collective.nranks - 1;
    return collective.kind == CollectiveKind::kBroadcast && !sends.empty() && !to_everyone;
  }

  ProgramView view() const {
    return {lanes.data(),
            steps.data(),
            operands.data(),
            dependencies.data(),
            static_cast<uint32_t>(lanes.size()),
            chunks};
  }
};

}  // namespace weft
