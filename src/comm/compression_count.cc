// See compression_count.h.
#include "src/comm/compression_count.h"

#include <algorithm>

namespace weft {
namespace {

int mantissa_of(ncclDataType_t type) {
  return type == ncclFloat32 ? 23 : type == ncclFloat16 ? 10 : 7;
}

}  // namespace

void CompressionCount::set(const Numbers& to) {
  calls = to.calls;
  before = to.before;
  after = to.after;
  passes = to.passes;
  bound = to.bound;
}

void CompressionCount::add(const VerifiedSchedule& verified, int rank, const Call& call) {
  const Schedule& schedule = verified.schedule();
  const auto element = static_cast<uint32_t>(element_size(call.reduction.type));
  const auto chunks = static_cast<uint64_t>(schedule.chunks);
  // As executors cut it.
  const uint64_t unit = verified.uniform_only() ? 1 : schedule.codecs.front().block;
  const uint64_t chunk = ((call.count + chunks - 1) / chunks + unit - 1) / unit * unit;
  uint64_t plain = 0, coded = 0;
  const auto& lanes = schedule.ranks[static_cast<size_t>(rank)].lanes;
  for (size_t l = 0; l < lanes.size(); l++)
    for (size_t n = 0; n < lanes[l].steps.size(); n++) {
      const Step& step = lanes[l].steps[n];
      const int piece = verified.facts(rank, static_cast<int>(l), static_cast<int>(n)).piece;
      for (const Operand& to : step.to) {
        if (to.kind != Operand::Kind::kPeer || to.codec == 0) continue;
        for (int c = 0; c < step.count; c++) {
          const auto sub = static_cast<uint64_t>((piece + c) % schedule.chunks);
          const uint64_t begin = std::min<uint64_t>(sub * chunk, call.count);
          const uint64_t elements = std::min<uint64_t>(chunk, call.count - begin);
          plain += elements * element;
          coded += encoded_bytes(schedule.codecs[to.codec - 1u], elements, element);
        }
      }
    }
  double most = bound.load(std::memory_order_relaxed);
  for (const CodecSpec& spec : schedule.codecs)
    most = std::max(most, codec_bound(spec, mantissa_of(call.reduction.type)));
  bound.store(most, std::memory_order_relaxed);
  passes.store(std::max(passes.load(std::memory_order_relaxed), verified.passes()),
               std::memory_order_relaxed);
  before.fetch_add(plain, std::memory_order_relaxed);
  after.fetch_add(coded, std::memory_order_relaxed);
  calls.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace weft
