// Movements whose messages are packets. A thread moves eight bytes at a time from all sources to
// all destinations, and waits for the packets among them itself.
#pragma once

#include "src/exec/cuda/kernels/combine.cuh"
#include "src/exec/cuda/kernels/words.cuh"
#include "src/exec/cuda/lane_program.h"

namespace weft::cuda {

// Which ends of a Movement are packets. In shared memory.
struct PacketFlags {
  uint32_t sources[kMostEnds], destinations[kMostEnds];  // the packets' flag; 0: plain memory
  int peer;  // for reports
};

// Waits for the word at `at` of up to `Batch` sources. Words of plain memory beyond `left` bytes
// are zero. False: all threads must stop.
template <int Batch>
__device__ __forceinline__ bool gather_words(const LaneArguments& a, const Movement& m,
                                             const PacketFlags& flags, uint32_t first, uint64_t w,
                                             uint64_t left, uint64_t (&words)[Batch]) {
#pragma unroll
  for (int b = 0; b < Batch; b++) {
    const uint32_t s = first + b;
    if (s < m.source_count && flags.sources[s] == 0)
      words[b] = left > 0 ? load_word(m.sources[s] + w * 8, left) : 0;
  }
  return wait_until(a.watch, flags.peer, [&] {
    Packet packets[Batch];
#pragma unroll
    for (int b = 0; b < Batch; b++)
      if (first + b < m.source_count && flags.sources[first + b] != 0)
        packets[b] = load_packet(reinterpret_cast<const Packet*>(m.sources[first + b]) + w);
    bool all = true;
#pragma unroll
    for (int b = 0; b < Batch; b++) {
      if (first + b >= m.source_count) continue;
      const uint32_t flag = flags.sources[first + b];
      if (flag == 0) continue;
      words[b] = static_cast<uint64_t>(packets[b].data1) << 32 | packets[b].data0;
      all = all && packets[b].flag0 == flag && packets[b].flag1 == (flag ^ a.signature);
    }
    return all;
  });
}

// All threads of a block. False: all must stop. A message without data is one packet: peers rely on
// the order that it creates.
template <typename Type, typename Op>
__device__ __noinline__ bool move_packets(const LaneArguments& a, const Movement& m,
                                          const PacketFlags& flags) {
  using Element = typename Type::Element;
  constexpr int kSize = sizeof(Element), kCount = 8 / kSize;
  const uint64_t bytes = m.elements * kSize;
  const uint64_t words = bytes == 0 ? 1 : (bytes + 7) / 8;
  for (uint64_t w = threadIdx.x; w < words; w += blockDim.x) {
    const uint64_t left = bytes > w * 8 ? bytes - w * 8 : 0;
    uint64_t word = 0;
    if (m.source_count == 1 && (!kSums<Op> || m.scaled == 0)) {
      uint64_t one[1];
      if (!gather_words<1>(a, m, flags, 0, w, left, one)) return false;
      word = one[0];
    } else if constexpr (!std::is_same_v<Type, Bytes>) {
      typename Type::Accumulator sum[kCount];
      for (uint32_t first = 0; first < m.source_count; first += 4) {
        uint64_t read[4];
        if (!gather_words<4>(a, m, flags, first, w, left, read)) return false;
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
      const uint32_t flag = flags.destinations[k];
      if (flag != 0) {
        store_packet(reinterpret_cast<Packet*>(m.destinations[k]) + w,
                     static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32), flag,
                     flag ^ a.signature);
      } else if (left > 0) {
        store_word(m.destinations[k] + w * 8, left, word);
      }
    }
  }
  return true;
}

}  // namespace weft::cuda
