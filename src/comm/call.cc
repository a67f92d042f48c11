// See call.h.
#include "src/comm/call.h"

#include <cstddef>

namespace weft {

size_t array_bytes(const Collective& c, const Call& call) {
  return call.count * element_size(call.reduction.type) * static_cast<size_t>(c.array_blocks());
}

namespace {

PlanCall::Numbers numbers_of(const Collective& c, const Reduction& reduction) {
  if (reduction.type != ncclFloat32 && reduction.type != ncclFloat16 &&
      reduction.type != ncclBfloat16)
    return PlanCall::Numbers::kOtherTypes;
  return c.reduces() && reduction.op != ncclSum ? PlanCall::Numbers::kOtherOperators
                                                : PlanCall::Numbers::kFloatSums;
}

}  // namespace

PlanCall plan_call(const Collective& c, const Call& call, int rank, bool captured) {
  PlanCall asked;
  asked.collective = c;
  asked.bytes = array_bytes(c, call);
  asked.count = call.count;
  asked.element = element_size(call.reduction.type);
  asked.in_place = is_in_place(c, call, rank);
  asked.captured = captured;
  asked.numbers = numbers_of(c, call.reduction);
  return asked;
}

bool is_in_place(const Collective& c, const Call& call, int rank) {
  const size_t block = call.block() * element_size(call.reduction.type);
  const Collective::Overlap overlap = c.overlap(rank, 1);
  const auto* input = static_cast<const std::byte*>(call.input);
  const auto* output = static_cast<const std::byte*>(call.output);
  if (input == nullptr || output == nullptr || c.input_blocks(rank) == 0 ||
      c.output_blocks(rank) == 0)
    return false;
  return input + block * static_cast<size_t>(overlap.output_at) ==
         output + block * static_cast<size_t>(overlap.input_at);
}

}  // namespace weft
