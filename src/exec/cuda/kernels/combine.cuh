// Data movement of a thread block: reduce from several addresses, write to several. Vectors of 16
// bytes with several loads in flight, wherever the buffers lie.
#pragma once

#include "src/exec/cuda/kernels/memory.cuh"
#include "src/exec/cuda/kernels/numbers.cuh"

namespace weft::cuda {

// The addresses of one step, in shared memory. (Functions here take other types with these members
// too.)
struct Movement {
  static constexpr int kGroup = 1;  // sources that are loaded before the first is needed
  const std::byte* sources[kMaxRanks];
  uint64_t scalars[kMaxRanks];  // pre-multipliers of the sources that have one
  std::byte* destinations[kMaxRanks];
  uint32_t source_count, destination_count;
  uint64_t scaled;     // bit i: source i is multiplied by scalars[i]
  uint32_t divide_by;  // 0: no division
  bool aligned;        // all addresses are multiples of 16; false: not known
  ncclRedOp_t op;      // for kernels that get the operator at run time, see kToldLater
  uint64_t elements;
};

// The threads that share a piece of work: `threads` of each of `ctas` blocks. Blocks alternate, a
// tile each, so together they sweep through memory. That suits DRAM pages. Ranks that share the
// DRAM begin at different places, `turn` of `turns`.
struct Team {
  uint32_t thread, threads, cta, ctas;
  uint32_t turn = 0, turns = 1;
  // If set, blocks draw tiles from this counter instead. No block falls behind, and all stay close
  // together in memory. Zero at first; all threads of a block belong to the team.
  uint32_t* drawn = nullptr;
};
__device__ inline Team whole_grid() { return {threadIdx.x, blockDim.x, blockIdx.x, gridDim.x}; }
__device__ inline Team whole_block() { return {threadIdx.x, blockDim.x, 0, 1}; }
// Threads of one block. What is the same for all such teams takes no registers.
struct BlockTeam {
  uint32_t thread, threads;
  static constexpr uint32_t cta = 0, ctas = 1, turn = 0, turns = 1;
  static constexpr uint32_t* drawn = nullptr;
};

// A vector for every thread of a warp.
inline constexpr uint32_t kRowBytes = 16 * kWarp;

// Every warp's share of `tiles`. (Tile numbers fit in 32 bits, which take half the instructions.
// Work that all warps do before they move data adds to the time of every call.)
template <typename T, typename Use>
__device__ __forceinline__ void share_out(uint32_t tiles, const T& team, const Use& use) {
  __shared__ uint32_t next[2];
  const uint32_t warps = team.threads / kWarp, warp = team.thread / kWarp;
  const bool draws = team.drawn != nullptr && tiles >= 2 * team.ctas * warps;
  for (uint32_t k = 0;; k++) {
    // A block takes one tile per warp. Its first tiles are fixed.
    uint32_t turn = k * team.ctas + team.cta;
    if (draws) {
      if (k > 0) {
        __syncthreads();
        turn = team.ctas + next[k & 1];
      }
      if (turn * warps >= tiles) return;
      if (threadIdx.x == 0) next[(k + 1) & 1] = atomicAdd(team.drawn, 1);
    }
    const uint32_t tile = turn * warps + warp;
    if (tile < tiles) {
      use(tile);
    } else if (!draws) {
      return;
    }
  }
}

template <typename Type>
__device__ typename Type::Element scale(typename Type::Element e, uint64_t scalar_bits) {
  if constexpr (sizeof(typename Type::Element) <= 2 &&
                std::is_same_v<typename Type::Accumulator, float>) {
    // A factor in full precision is in the upper half, see GpuExecutor::run_rings().
    const auto high = static_cast<uint32_t>(scalar_bits >> 32);
    if (high != 0) return Type::store(Prod::apply(Type::load(e), __uint_as_float(high)));
  }
  typename Type::Element scalar;
  memcpy(&scalar, &scalar_bits, sizeof scalar);
  return Type::store(Prod::apply(Type::load(e), Type::load(scalar)));
}

// A pack of elements: a 16-byte vector or a single element.
template <typename Type, int Count>
struct Pack {
  typename Type::Element e[Count];
};

template <typename P, bool Aligned>
__device__ __forceinline__ P load_pack(const std::byte* at) {
  P pack;
  if constexpr (sizeof(P) == 16) {
    const uint4 v = Aligned ? load_vector(at) : load_unaligned_vector(at);
    memcpy(&pack, &v, 16);
  } else {
    using Element = std::remove_reference_t<decltype(pack.e[0])>;
    pack.e[0] = *reinterpret_cast<const volatile Element*>(at);
  }
  return pack;
}
template <typename P>
__device__ __forceinline__ void store_pack(std::byte* at, const P& pack) {
  if constexpr (sizeof(P) == 16) {
    uint4 v;
    memcpy(&v, &pack, 16);
    store_vector(at, v);
  } else {
    using Element = std::remove_cvref_t<decltype(pack.e[0])>;
    *reinterpret_cast<volatile Element*>(at) = pack.e[0];
  }
}

// Reduces the values read from source s into the sums. `scales` is m.scaled.
template <typename Type, typename Op, int Count, typename M>
__device__ __forceinline__ void accumulate(const M& m, uint64_t scales, uint32_t s,
                                           const Pack<Type, Count>& read,
                                           typename Type::Accumulator (&sum)[Count]) {
  with_operator<Op>(m.op, [&](auto op) {
    const bool scaled = kSums<decltype(op)> && ((scales >> s) & 1u) != 0;
#pragma unroll
    for (int i = 0; i < Count; i++) {
      const auto e = scaled ? scale<Type>(read.e[i], m.scalars[s]) : read.e[i];
      sum[i] = s == 0 ? Type::load(e) : op.apply(sum[i], Type::load(e));
    }
  });
}
template <typename Type, typename Op, int Count, typename M>
__device__ __forceinline__ Pack<Type, Count> finish(const M& m,
                                                    typename Type::Accumulator (&sum)[Count]) {
  Pack<Type, Count> result;
#pragma unroll
  for (int i = 0; i < Count; i++) {
    if (kSums<Op> && m.divide_by > 0) sum[i] = divide(sum[i], m.divide_by);
    result.e[i] = Type::store(sum[i]);
  }
  return result;
}

// Bulk data: a warp moves tiles of `Unroll` rows, so all addresses of a tile are one
// address plus constants. `Group` sources are loaded before the first is needed. (Eight instead of
// four took registers: 1 us more with two ranks, and a fifth of the bandwidth at 64 MiB.)
template <typename Type, typename Op, int Unroll, int Group, typename M, typename T>
__device__ __forceinline__ void combine_tiles(const M& m, uint32_t tiles, uint64_t offset,
                                              const T& team) {
  constexpr int kCount = 16 / sizeof(typename Type::Element);
  using P = Pack<Type, kCount>;
  const uint32_t lane = team.thread % kWarp;
  share_out(tiles, team, [&](uint32_t tile) {
    const uint64_t at = offset + uint64_t{tile} * (Unroll * kRowBytes) + lane * 16;
    typename Type::Accumulator sum[Unroll][kCount];
    for (uint32_t s = 0; s < m.source_count; s += Group) {
      P read[Group][Unroll];
#pragma unroll
      for (int g = 0; g < Group; g++) {
        if (g > 0 && s + g >= m.source_count) break;
        const std::byte* source = m.sources[s + g] + at;
#pragma unroll
        for (int u = 0; u < Unroll; u++) read[g][u] = load_pack<P, true>(source + u * kRowBytes);
      }
#pragma unroll
      for (int g = 0; g < Group; g++) {
        if (g > 0 && s + g >= m.source_count) break;
#pragma unroll
        for (int u = 0; u < Unroll; u++)
          accumulate<Type, Op, kCount>(m, m.scaled, s + g, read[g][u], sum[u]);
      }
    }
    P result[Unroll];
#pragma unroll
    for (int u = 0; u < Unroll; u++) result[u] = finish<Type, Op, kCount>(m, sum[u]);
    for (uint32_t d = 0; d < m.destination_count; d++) {
      std::byte* to = m.destinations[d] + at;
#pragma unroll
      for (int u = 0; u < Unroll; u++) store_pack(to + u * kRowBytes, result[u]);
    }
  });
}

// The following runs once or twice per thread. Loops that are not unrolled need less instruction
// fetch.

// The rest, pack by pack. `Group` sources are loaded before the first is needed.
template <typename Type, typename Op, int Count, int Group, bool Aligned, typename M, typename T>
__device__ __forceinline__ void combine_singles(const M& m, uint64_t packs, uint64_t offset,
                                                const T& team) {
  using P = Pack<Type, Count>;
  const uint32_t sources = m.source_count, destinations = m.destination_count;
  const uint64_t scales = m.scaled;
#pragma unroll 1
  for (uint64_t p = uint64_t{team.cta} * team.threads + team.thread; p < packs;
       p += uint64_t{team.ctas} * team.threads) {
    const uint64_t at = offset + p * sizeof(P);
    typename Type::Accumulator sum[Count];
#pragma unroll 1
    for (uint32_t s = 0; s < sources; s += Group) {
      P read[Group];
#pragma unroll
      for (int g = 0; g < Group; g++)
        if (s + g < sources) read[g] = load_pack<P, Aligned>(m.sources[s + g] + at);
#pragma unroll
      for (int g = 0; g < Group; g++)
        if (s + g < sources) accumulate<Type, Op, Count>(m, scales, s + g, read[g], sum);
    }
    const P result = finish<Type, Op, Count>(m, sum);
#pragma unroll 1
    for (uint32_t d = 0; d < destinations; d++) store_pack(m.destinations[d] + at, result);
  }
}

// How `bytes` at these addresses are split: a head until the destinations are aligned, then
// vectors, then a tail. If destinations are aligned differently, all bytes belong to the head.
struct Cut {
  uint64_t head, vectors;
  bool aligned;  // the sources are aligned too, after the head
};
__device__ inline Cut cut(const std::byte* const* sources, uint32_t source_count,
                          std::byte* const* destinations, uint32_t destination_count,
                          uint64_t bytes, uint32_t element) {
  const uintptr_t to = reinterpret_cast<uintptr_t>(destinations[0]);
  uintptr_t differ = 0, shifted = 0;
#pragma unroll 1
  for (uint32_t d = 1; d < destination_count; d++)
    differ |= (reinterpret_cast<uintptr_t>(destinations[d]) ^ to) & 15;
#pragma unroll 1
  for (uint32_t s = 0; s < source_count; s++)
    shifted |= (reinterpret_cast<uintptr_t>(sources[s]) ^ to) & 15;
  const uint64_t head = (16 - (to & 15)) & 15;
  if (differ != 0 || head % element != 0 || bytes < head + 32) return {bytes, 0, true};
  // An unaligned load reads to the end of the next vector. So the last vector is left to the tail.
  return {head, (bytes - head) / 16 - (shifted != 0 ? 1 : 0), shifted == 0};
}

// The same if all addresses are multiples of 16.
__device__ inline Cut whole_vectors(uint64_t bytes) { return {0, bytes / 16, true}; }

// Plain bytes: one source, any number of destinations. Tiles as above.
template <int Unroll, typename T>
__device__ __forceinline__ void copy_tiles(const std::byte* source, std::byte* const* destinations,
                                           uint32_t count, uint64_t offset, uint32_t tiles,
                                           const T& team) {
  if (tiles == 0) return;
  const uint32_t lane = team.thread % kWarp, skew = tiles / team.turns * team.turn;
  share_out(tiles, team, [&](uint32_t n) {
    const uint32_t tile = n + skew < tiles ? n + skew : n + skew - tiles;
    const uint64_t at = offset + uint64_t{tile} * (Unroll * kRowBytes) + lane * 16;
    uint4 v[Unroll];
#pragma unroll
    for (int u = 0; u < Unroll; u++) v[u] = load_vector(source + at + u * kRowBytes);
#pragma unroll 1
    for (uint32_t d = 0; d < count; d++) {
      std::byte* to = destinations[d] + at;
#pragma unroll
      for (int u = 0; u < Unroll; u++) store_vector(to + u * kRowBytes, v[u]);
    }
  });
}
template <bool Aligned, typename T>
__device__ __forceinline__ void copy_singles(const std::byte* source,
                                             std::byte* const* destinations, uint32_t count,
                                             uint64_t offset, uint64_t vectors, const T& team) {
#pragma unroll 1
  for (uint64_t i = uint64_t{team.cta} * team.threads + team.thread; i < vectors;
       i += uint64_t{team.ctas} * team.threads) {
    const uint64_t at = offset + i * 16;
    const uint4 v = Aligned ? load_vector(source + at) : load_unaligned_vector(source + at);
#pragma unroll 1
    for (uint32_t d = 0; d < count; d++) store_vector(destinations[d] + at, v);
  }
}
template <typename T>
__device__ __forceinline__ void copy_bytes(const std::byte* source, std::byte* const* destinations,
                                           uint32_t count, uint64_t begin, uint64_t end, T team) {
  uintptr_t misaligned = reinterpret_cast<uintptr_t>(source + begin);
#pragma unroll 1
  for (uint32_t d = 0; d < count; d++)
    misaligned |= reinterpret_cast<uintptr_t>(destinations[d] + begin);
  const uint64_t words = (misaligned & 3) == 0 ? (end - begin) / 4 : 0;
  const uint64_t t = team.cta * team.threads + team.thread, all = team.ctas * team.threads;
#pragma unroll 1
  for (uint64_t w = t; w < words; w += all) {
    const uint32_t v = reinterpret_cast<const volatile uint32_t*>(source + begin)[w];
#pragma unroll 1
    for (uint32_t d = 0; d < count; d++)
      reinterpret_cast<volatile uint32_t*>(destinations[d] + begin)[w] = v;
  }
#pragma unroll 1
  for (uint64_t b = begin + words * 4 + t; b < end; b += all) {
    const auto v = reinterpret_cast<const volatile uint8_t*>(source)[b];
#pragma unroll 1
    for (uint32_t d = 0; d < count; d++)
      reinterpret_cast<volatile uint8_t*>(destinations[d])[b] = v;
  }
}
// Not inlined, so that it has its own register allocation. `aligned` as in Movement.
template <int Large, typename T>
__device__ __noinline__ void copy(const std::byte* source, std::byte* const* destinations,
                                  uint32_t count, uint64_t bytes, bool aligned, T team) {
  const Cut c = aligned ? whole_vectors(bytes) : cut(&source, 1, destinations, count, bytes, 1);
  if (c.aligned) {
    // Larger tiles are used while there is one for every warp. Drawn tiles are small, so that the
    // last ones end at about the same time.
    const uint64_t threads = uint64_t{team.threads} * team.ctas;
    uint64_t done = 0;
    const auto tiles_of = [&](uint64_t unroll) {
      const uint64_t left = c.vectors - done;
      return left >= threads * unroll ? static_cast<uint32_t>(left / (kWarp * unroll)) : 0;
    };
    const uint32_t large = team.drawn == nullptr ? tiles_of(Large) : 0;
    copy_tiles<Large>(source, destinations, count, c.head, large, team);
    done = uint64_t{large} * (kWarp * Large);
    const uint32_t small = tiles_of(4);
    copy_tiles<4>(source, destinations, count, c.head + done * 16, small, team);
    done += uint64_t{small} * (kWarp * 4);
    copy_singles<true>(source, destinations, count, c.head + done * 16, c.vectors - done, team);
  } else {
    copy_singles<false>(source, destinations, count, c.head, c.vectors, team);
  }
  if (c.head > 0) copy_bytes(source, destinations, count, 0, c.head, team);
  const uint64_t done = c.head + c.vectors * 16;
  if (done < bytes) copy_bytes(source, destinations, count, done, bytes, team);
}

// The type of collectives that only move data.
struct Bytes : Native<uint8_t> {};
// Vectors that a copying thread has in flight, as far as the kernels have registers.
template <typename Type>
inline constexpr int kCopied = std::is_same_v<Type, Bytes> ? 16 : 8;

// A block's part of the movement is complete in its view after the next __syncthreads(). `Far`:
// sources are in host memory, where a load takes a microsecond. So several loads are in flight at
// once, as far as registers allow.
template <typename Type, typename Op, bool Far = false, typename M = Movement, typename T = Team>
__device__ __noinline__ void combine(const M& m, T team) {
  constexpr int kSize = sizeof(typename Type::Element), kCount = 16 / kSize;
  if (m.source_count == 1 && (!kSums<Op> || m.scaled == 0))
    return copy<kCopied<Type>>(m.sources[0], m.destinations, m.destination_count,
                               m.elements * kSize, m.aligned, team);
  if constexpr (std::is_same_v<Type, Bytes>) return;  // Bytes are only copied
  // As many loads in flight as there are registers for sums.
  constexpr bool kGroups = Far && (kSize == 2 || kSize == 4);
  constexpr int kGroup = kGroups ? 4 : M::kGroup;
  constexpr int kUnroll = (kSize >= 4 ? 4 : kSize == 2 ? 2 : 1) / (kGroups ? 2 : 1);
  const uint64_t elements = m.elements;
  const Cut c = m.aligned ? whole_vectors(elements * kSize)
                          : cut(m.sources, m.source_count, m.destinations, m.destination_count,
                                elements * kSize, kSize);
  if (c.aligned) {
    uint64_t done = 0;
    if (c.vectors >= uint64_t{team.threads} * team.ctas * kUnroll) {
      const auto tiles = static_cast<uint32_t>(c.vectors / (kWarp * kUnroll));
      combine_tiles<Type, Op, kUnroll, kGroup>(m, tiles, c.head, team);
      done = uint64_t{tiles} * (kWarp * kUnroll);
    }
    // (Eight at once need more registers, which costs 1 us with few ranks.)
    combine_singles<Type, Op, kCount, 4, true>(m, c.vectors - done, c.head + done * 16, team);
  } else {
    combine_singles<Type, Op, kCount, 2, false>(m, c.vectors, c.head, team);
  }
  const uint64_t done = (c.head + c.vectors * 16) / kSize;
  if (c.head > 0) combine_singles<Type, Op, 1, 2, true>(m, c.head / kSize, 0, team);
  if (done < elements)
    combine_singles<Type, Op, 1, 2, true>(m, elements - done, done * kSize, team);
}

}  // namespace weft::cuda
