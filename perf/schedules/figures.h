// Figures of a schedule that hold for every size: what it moves, and its longest chain of steps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/schedule/verify.h"

namespace weft::perf::schedules {

struct Figures {
  size_t lanes = 0;  // of the rank that has most
  size_t steps = 0;  // of all ranks; steps without operands (nops) do not count
  // Steps on the longest chain. A step follows the step before it in its lane, the steps that it
  // waits for, and the steps that send what it receives.
  size_t chain = 0;
  // Chunks that all steps of all ranks read and write. Every source of a step is one read, every
  // destination one write: so a message is one write and one read.
  uint64_t moved_chunks = 0;
  uint64_t message_chunks = 0;  // the part of it that is messages, written and read
};

Figures figures_of(const VerifiedSchedule& verified);

}  // namespace weft::perf::schedules
