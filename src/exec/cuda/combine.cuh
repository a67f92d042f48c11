// Data movement of a thread block: reduce from several addresses, write to several. Vectors of 16
// bytes with several loads in flight where everything is aligned, element by element otherwise.
#pragma once

#include "src/exec/cuda/memory.cuh"
#include "src/exec/cuda/numbers.cuh"

namespace weft::cuda {

// One step's worth of addresses, in shared memory.
struct Movement {
  const std::byte* sources[kMaxRanks];
  uint64_t scalars[kMaxRanks];  // pre-multipliers of the sources that have one
  std::byte* destinations[kMaxRanks];
  uint32_t source_count, destination_count;
  uint64_t scaled;     // bit i: source i is multiplied by scalars[i]
  uint32_t divide_by;  // 0: no division
  uint64_t elements;
};

template <typename Type>
__device__ typename Type::Element scale(typename Type::Element e, uint64_t scalar_bits) {
  typename Type::Element scalar;
  memcpy(&scalar, &scalar_bits, sizeof scalar);
  return Type::store(Prod::apply(Type::load(e), Type::load(scalar)));
}

// A pack of elements: a 16-byte vector or a single element.
template <typename Type, int Count>
struct Pack {
  typename Type::Element e[Count];
};

template <typename Type, typename Op, int Count, int Unroll>
__device__ __forceinline__ void combine_packs(const Movement& m, uint64_t packs, uint64_t offset) {
  using Element = typename Type::Element;
  using P = Pack<Type, Count>;
  const auto load = [](const std::byte* at) {
    P pack;
    if constexpr (sizeof(P) == 16) {
      const uint4 v = load_vector(at);
      memcpy(&pack, &v, 16);
    } else {
      pack.e[0] = *reinterpret_cast<const volatile Element*>(at);
    }
    return pack;
  };
  const uint64_t stride = blockDim.x;
  for (uint64_t first = blockIdx.x * stride * Unroll + threadIdx.x; first < packs;
       first += gridDim.x * stride * Unroll) {
    typename Type::Accumulator sum[Unroll][Count];
    for (uint32_t s = 0; s < m.source_count; s++) {
      const std::byte* source = m.sources[s] + offset;
      P packs_read[Unroll];
#pragma unroll
      for (int u = 0; u < Unroll; u++)
        if (first + u * stride < packs)
          packs_read[u] = load(source + (first + u * stride) * sizeof(P));
      const bool scaled = ((m.scaled >> s) & 1u) != 0;
#pragma unroll
      for (int u = 0; u < Unroll; u++) {
#pragma unroll
        for (int i = 0; i < Count; i++) {
          const Element e =
              scaled ? scale<Type>(packs_read[u].e[i], m.scalars[s]) : packs_read[u].e[i];
          sum[u][i] = s == 0 ? Type::load(e) : Op::apply(sum[u][i], Type::load(e));
        }
      }
    }
    P result[Unroll];
#pragma unroll
    for (int u = 0; u < Unroll; u++) {
#pragma unroll
      for (int i = 0; i < Count; i++) {
        if (m.divide_by > 0) sum[u][i] = divide(sum[u][i], m.divide_by);
        result[u].e[i] = Type::store(sum[u][i]);
      }
    }
    for (uint32_t d = 0; d < m.destination_count; d++) {
      std::byte* destination = m.destinations[d] + offset;
#pragma unroll
      for (int u = 0; u < Unroll; u++) {
        if (first + u * stride >= packs) continue;
        std::byte* at = destination + (first + u * stride) * sizeof(P);
        if constexpr (sizeof(P) == 16) {
          uint4 v;
          memcpy(&v, &result[u], 16);
          store_vector(at, v);
        } else {
          *reinterpret_cast<volatile Element*>(at) = result[u].e[0];
        }
      }
    }
  }
}

// The threads that share a piece of work: `threads` of each of `ctas` blocks. Blocks take turns, a
// tile each, so that all of them together sweep through memory: that is kind to DRAM pages.
struct Team {
  uint32_t thread, threads, cta, ctas;
};

// Plain bytes: one source, any number of destinations.
template <int Unroll>
__device__ __forceinline__ void copy(const std::byte* source, std::byte* const* destinations,
                                     uint32_t count, uint64_t bytes, const Team& team) {
  const uint64_t t = team.thread, threads = team.threads;
  uintptr_t misaligned = reinterpret_cast<uintptr_t>(source);
  for (uint32_t d = 0; d < count; d++) misaligned |= reinterpret_cast<uintptr_t>(destinations[d]);
  const uint64_t vectors = (misaligned & 15) == 0 ? bytes / 16 : 0;
  for (uint64_t first = team.cta * threads * Unroll + t; first < vectors;
       first += team.ctas * threads * Unroll) {
    uint4 v[Unroll];
#pragma unroll
    for (int u = 0; u < Unroll; u++)
      if (first + u * threads < vectors) v[u] = load_vector(source + (first + u * threads) * 16);
    for (uint32_t d = 0; d < count; d++) {
      std::byte* to = destinations[d] + first * 16;
#pragma unroll
      for (int u = 0; u < Unroll; u++)
        if (first + u * threads < vectors) store_vector(to + u * threads * 16, v[u]);
    }
  }
  // What is left, or everything if something is not aligned: by four bytes where possible.
  const uint64_t words = (misaligned & 3) == 0 ? (bytes - vectors * 16) / 4 : 0;
  for (uint64_t w = team.cta * threads + t; w < words; w += team.ctas * threads) {
    const uint32_t v = reinterpret_cast<const volatile uint32_t*>(source + vectors * 16)[w];
    for (uint32_t d = 0; d < count; d++)
      reinterpret_cast<volatile uint32_t*>(destinations[d] + vectors * 16)[w] = v;
  }
  for (uint64_t b = vectors * 16 + words * 4 + team.cta * threads + t; b < bytes;
       b += team.ctas * threads) {
    const auto v = reinterpret_cast<const volatile uint8_t*>(source)[b];
    for (uint32_t d = 0; d < count; d++)
      reinterpret_cast<volatile uint8_t*>(destinations[d])[b] = v;
  }
}

// The type of collectives that only move data.
struct Bytes : Native<uint8_t> {};

// All threads of all blocks; a block's part of the movement is complete in its view after the next
// __syncthreads().
template <typename Type, typename Op>
__device__ void combine(const Movement& m) {
  using Element = typename Type::Element;
  if (m.source_count == 1 && m.scaled == 0)
    return copy<8>(m.sources[0], m.destinations, m.destination_count, m.elements * sizeof(Element),
                   {threadIdx.x, blockDim.x, blockIdx.x, gridDim.x});
  if constexpr (std::is_same_v<Type, Bytes>) return;  // nothing else is asked of it
  constexpr int kCount = 16 / sizeof(Element);
  // As many loads in flight as the registers hold sums for.
  constexpr int kUnroll = sizeof(Element) >= 4 ? 4 : sizeof(Element) == 2 ? 2 : 1;
  uintptr_t misaligned = 0;
  for (uint32_t s = 0; s < m.source_count; s++)
    misaligned |= reinterpret_cast<uintptr_t>(m.sources[s]);
  for (uint32_t d = 0; d < m.destination_count; d++)
    misaligned |= reinterpret_cast<uintptr_t>(m.destinations[d]);
  const uint64_t vectors = (misaligned & 15) == 0 ? m.elements / kCount : 0;
  combine_packs<Type, Op, kCount, kUnroll>(m, vectors, 0);
  combine_packs<Type, Op, 1, 1>(m, m.elements - vectors * kCount, vectors * 16);
}

}  // namespace weft::cuda
