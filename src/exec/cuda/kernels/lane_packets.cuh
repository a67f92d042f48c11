// The data of a lane's step. Its messages may be packets: a thread then moves eight bytes at a time
// from all sources to all destinations, and waits for the packets among them itself.
#pragma once

#include "src/exec/cuda/kernels/combine.cuh"
#include "src/exec/cuda/kernels/far_messages.cuh"
#include "src/exec/cuda/kernels/words.cuh"

namespace weft::cuda {

// The most sources of a step, and destinations of a movement.
inline constexpr uint32_t kMostEnds = 64;

// The movement of a step, in shared memory. As combine() wants it.
struct alignas(16) LaneMovement {
  static constexpr int kGroup = 2;  // a step that sums mostly has two sources
  const std::byte* const* sources;
  std::byte* const* destinations;
  uint32_t source_count, destination_count;
  uint64_t scaled;
  uint64_t elements;
  uint32_t divide_by;
  ncclRedOp_t op;
  bool aligned;
  // All sources have the same multiplier.
  struct {
    uint64_t bits;
    __device__ uint64_t operator[](uint32_t) const { return bits; }
  } scalars;
  // Packets: the ends of sources and destinations, and the flag of those that are messages.
  const LaneEnd *source_ends, *destination_ends;
  uint32_t call;
  // Of a step with codecs, sources first; otherwise nullptr. All destinations of such a step are
  // here: verify() allows it no more.
  const LaneOperand* operands;
  float* losses;  // by element, of a step that keeps what it loses; else nullptr
};

// Waits for word `w` of up to `Batch` sources. Words of plain memory beyond `left` bytes are zero.
// False: all threads must stop.
template <int Batch>
__device__ __forceinline__ bool gather_words(const LaneArguments& a, const LaneMovement& m,
                                             uint32_t first, uint64_t w, uint64_t left,
                                             uint64_t (&words)[Batch]) {
  const Packet* packets[Batch];  // nullptr: plain memory, or no source
#pragma unroll
  for (int b = 0; b < Batch; b++) {
    packets[b] = nullptr;
    if (first + b >= m.source_count) continue;
    const std::byte* at = m.sources[first + b];
    if (m.source_ends[first + b].kind == LaneEnd::kPacket) {
      packets[b] = reinterpret_cast<const Packet*>(at) + w;
    } else {
      words[b] = left > 0 ? load_word(at + w * 8, left) : 0;
    }
  }
  int peer = -1;  // the peer waited for
  const auto here = [&] {
    Packet read[Batch];
#pragma unroll
    for (int b = 0; b < Batch; b++)
      if (packets[b] != nullptr) read[b] = load_packet(packets[b]);
    bool all = true;
#pragma unroll
    for (int b = 0; b < Batch; b++) {
      if (packets[b] == nullptr) continue;
      words[b] = static_cast<uint64_t>(read[b].data1) << 32 | read[b].data0;
      if (read[b].flag0 == m.call && read[b].flag1 == (m.call ^ a.signature)) continue;
      all = false;
      peer = m.source_ends[first + b].peer;
    }
    return all;
  };
  return wait_until(a.watch, peer, here, FarMessages{a});
}

// The threads of a team. False: all must stop. A message without data is one packet: peers rely on
// the order that it creates.
template <typename Type, typename Op>
__device__ __noinline__ bool move_packets(const LaneArguments& a, const LaneMovement& m,
                                          BlockTeam team) {
  using Element = typename Type::Element;
  constexpr int kSize = sizeof(Element), kCount = 8 / kSize;
  const uint64_t bytes = m.elements * kSize;
  const uint64_t words = bytes == 0 ? 1 : (bytes + 7) / 8;
  for (uint64_t w = team.thread; w < words; w += team.threads) {
    const uint64_t left = bytes > w * 8 ? bytes - w * 8 : 0;
    uint64_t word = 0;
    if (m.source_count == 1 && (!kSums<Op> || m.scaled == 0)) {
      uint64_t one[1];
      if (!gather_words<1>(a, m, 0, w, left, one)) return false;
      word = one[0];
    } else if constexpr (std::is_same_v<Type,
                                        Bytes>) {  // it carries nothing: peers rely on its order
      uint64_t none[1];
      for (uint32_t s = 0; s < m.source_count; s++)
        if (!gather_words<1>(a, m, s, w, left, none)) return false;
    } else {
      typename Type::Accumulator sum[kCount];
      for (uint32_t first = 0; first < m.source_count; first += 4) {
        uint64_t read[4];
        if (!gather_words<4>(a, m, first, w, left, read)) return false;
#pragma unroll
        for (int b = 0; b < 4; b++) {
          if (first + b >= m.source_count) continue;
          Pack<Type, kCount> pack;
          memcpy(&pack, &read[b], 8);
          accumulate<Type, Op, kCount>(m, m.scaled, first + b, pack, sum);
        }
      }
      const Pack<Type, kCount> result = finish<Type, Op, kCount>(m, sum);
      memcpy(&word, &result, 8);
    }
    for (uint32_t k = 0; k < m.destination_count; k++) {
      if (m.destination_ends[k].kind == LaneEnd::kPacket) {
        store_packet(reinterpret_cast<Packet*>(m.destinations[k]) + w, static_cast<uint32_t>(word),
                     static_cast<uint32_t>(word >> 32), m.call, m.call ^ a.signature);
      } else if (left > 0) {
        store_word(m.destinations[k] + w * 8, left, word);
      }
    }
  }
  return true;
}

}  // namespace weft::cuda
