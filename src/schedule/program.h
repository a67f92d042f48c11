// A Program: one rank's part of a VerifiedSchedule as flat arrays. Host and device read the same
// bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "src/schedule/collective.h"
#include "src/schedule/program_view.h"

namespace weft {

// Limit of the one_round kernel. It runs programs that are a single round of messages
// (exec/one_round_shape.h), between GPUs without peer access. A message may have at most this many
// bytes, and at most a slice. Planners count on it.
inline constexpr uint64_t kMostOneRoundBytes = 64 << 10;

struct Program {
  Collective collective;
  int32_t rank = 0;
  int32_t chunks = 1;
  int32_t scratch_chunks = 0;
  int32_t max_step_chunks = 1;  // most chunks in one message
  int32_t fifo_depth = 2;       // messages that a FIFO must hold
  bool reaches_memory =
      false;  // has tokens, or operands in peer memory: only some executors can run it
  bool partial_sums = false;  // a rank (any) stores or sends sums of some ranks only
  // All ranks access all peer memory and run the same steps. In each step the n ranks handle n
  // neighbouring chunks, from inputs to outputs, between two barriers. So any rank can do any
  // share.
  bool in_step = false;
  bool uniform_only = false;  // correct only if `chunks` divides the count
  std::vector<ProgramLane> lanes;
  std::vector<ProgramStep> steps;
  std::vector<ProgramOperand> operands;
  std::vector<ProgramDependency> dependencies;
  std::vector<ProgramPort> receives, sends;
  std::vector<CodecSpec> codecs;  // see ProgramOperand::codec

  // Whether this rank sends in a broadcast in which ranks forward what they receive.
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
            chunks,
            codecs.data()};
  }
};

}  // namespace weft
