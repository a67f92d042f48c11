// See played_call.h.
#include "src/tools/played_call.h"

#include <algorithm>

namespace weft {
namespace {

constexpr uint32_t kUntouched = 0xdeadbeef;

// Element `index` of a rank's input. The sum over all ranks follows directly, and no other set of
// ranks has the same sum.
uint32_t element(int rank, uint64_t index) {
  return static_cast<uint32_t>(rank) * 0x9e3779b1u + static_cast<uint32_t>(index) * 0x85ebca6bu;
}
uint32_t sum(int nranks, uint64_t index) {
  const auto n = static_cast<uint32_t>(nranks);
  return static_cast<uint32_t>(uint64_t{n} * (n - 1) / 2) * 0x9e3779b1u +
         n * static_cast<uint32_t>(index) * 0x85ebca6bu;
}

}  // namespace

PlayedCall::PlayedCall(const Collective& collective, int rank, uint64_t count, bool in_place)
    : collective_(collective),
      rank_(rank),
      count_(count),
      inputs_(static_cast<uint64_t>(collective.input_blocks(rank)) * count),
      outputs_(static_cast<uint64_t>(collective.output_blocks(rank)) * count) {
  const bool shared = in_place && inputs_ > 0 && outputs_ > 0;
  const Collective::Overlap overlap = collective.overlap(rank, 1);
  input_at_ = shared ? static_cast<uint64_t>(overlap.input_at) * count : 0;
  output_at_ = shared ? static_cast<uint64_t>(overlap.output_at) * count : inputs_;
  elements_ = shared ? std::max(inputs_, outputs_) : inputs_ + outputs_;
}

uint64_t PlayedCall::count_for(const Collective& collective, uint64_t bytes, uint64_t chunks) {
  const auto blocks = static_cast<uint64_t>(collective.array_blocks());
  return std::max(chunks, bytes / sizeof(uint32_t) / blocks / chunks * chunks);
}

Call PlayedCall::call(uint32_t* memory) const {
  Call call;
  call.kind = collective_.kind;
  call.input = inputs_ > 0 ? memory + input_at_ : nullptr;
  call.output = outputs_ > 0 ? memory + output_at_ : nullptr;
  call.count = count_;
  call.reduction.type = ncclUint32;
  call.reduction.op = ncclSum;
  call.root = collective_.root;
  return call;
}

void PlayedCall::fill(uint64_t first, std::span<uint32_t> piece) const {
  for (size_t i = 0; i < piece.size(); i++) {
    const uint64_t at = first + i - input_at_;  // wraps around before the input
    piece[i] = at < inputs_ ? element(rank_, at) : kUntouched;
  }
}

uint64_t PlayedCall::count_wrong_in_block(int block, uint64_t first,
                                          std::span<const uint32_t> piece) const {
  const CollectiveKind kind = collective_.kind;
  const ChunkGoal goal = collective_.goal(rank_, block, 1);
  const bool whole = goal.contributor == ChunkGoal::kEveryone;
  // The piece of a rank's input that the collective puts here.
  const bool mine = kind == CollectiveKind::kAllToAll || kind == CollectiveKind::kScatter ||
                    kind == CollectiveKind::kReduceScatter;
  if (mine) first += static_cast<uint64_t>(rank_) * count_;
  uint64_t wrong = 0;
  for (size_t i = 0; i < piece.size(); i++)
    wrong += piece[i] !=
             (whole ? sum(collective_.nranks, first + i) : element(goal.contributor, first + i));
  return wrong;
}

uint64_t PlayedCall::count_wrong(uint64_t first, std::span<const uint32_t> piece) const {
  const uint64_t begin = std::max(first, output_at_),
                 end = std::min(first + piece.size(), output_at_ + outputs_);
  uint64_t wrong = 0;
  for (uint64_t at = begin; at < end;) {
    const uint64_t block = (at - output_at_) / count_, in_block = (at - output_at_) % count_;
    const uint64_t n = std::min(end - at, count_ - in_block);
    wrong += count_wrong_in_block(static_cast<int>(block), in_block, piece.subspan(at - first, n));
    at += n;
  }
  return wrong;
}

}  // namespace weft
