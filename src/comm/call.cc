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
  asked.in_place = in_place_form(c, call, rank).is(call.input, call.output);
  asked.captured = captured;
  asked.numbers = numbers_of(c, call.reduction);
  return asked;
}

InPlace in_place_form(const Collective& c, const Call& call, int rank) {
  if (c.input_blocks(rank) == 0 || c.output_blocks(rank) == 0) return {};
  const auto block = static_cast<ptrdiff_t>(call.block() * element_size(call.reduction.type));
  const Collective::Overlap overlap = c.overlap(rank, 1);
  return {true, block * (overlap.output_at - overlap.input_at)};
}

}  // namespace weft
