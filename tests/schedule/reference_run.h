// Runs a verified schedule on one thread of the host, as a reference for executors: the same
// combine() with the operands of every step in their order, so results agree bit by bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/exec/datatype.h"
#include "src/schedule/verify.h"

namespace weft::test {

// Where a rank's buffers lie in one piece of memory. In elements.
struct BufferLayout {
  uint64_t inputs = 0, outputs = 0, input_at = 0, output_at = 0, elements = 0;
};
BufferLayout layout_of(const Collective& collective, int rank, uint64_t count, bool in_place);

// `memory`: per rank, laid out as above. It holds the inputs before and the outputs after. Throws
// if no step can run any more. For schedules without CPU nodes that send messages only. `losses`
// (may be nullptr): per rank, what lossy codecs lost in earlier calls, a float for every element of
// the input and then of the output.
void run_reference(const VerifiedSchedule& verified, const weft::Reduction& reduction,
                   uint64_t count, std::vector<std::vector<std::byte>>& memory,
                   std::vector<std::vector<float>>* losses = nullptr);

}  // namespace weft::test
