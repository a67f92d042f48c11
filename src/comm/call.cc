// See call.h.
#include "src/comm/call.h"

#include <cstddef>

namespace weft {

size_t array_bytes(const Collective& c, const Call& call) {
  const size_t block = call.count * element_size(call.reduction.type);
  const bool whole = c.kind == CollectiveKind::kAllGather ||
                     c.kind == CollectiveKind::kReduceScatter ||
                     c.kind == CollectiveKind::kAllToAll || c.kind == CollectiveKind::kGather ||
                     c.kind == CollectiveKind::kScatter;
  return whole ? block * static_cast<size_t>(c.nranks) : block;
}

bool is_in_place(const Collective& c, const Call& call, int rank) {
  const size_t block = call.count * element_size(call.reduction.type);
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
