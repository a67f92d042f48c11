// Top-k in lanes: which elements of a block are kept, and where they are in a message. The threads
// of a team have a group of the block each.
#pragma once

#include "src/exec/cuda/kernels/coded_groups.cuh"

namespace weft::cuda {

// Threads of a warp that work on one block: a power of two of them. All threads of the warp call
// these functions together.
struct WarpTeam {
  uint32_t size = 1;
  __device__ uint32_t lane() const { return threadIdx.x % kWarp; }
  __device__ uint32_t member() const { return lane() % size; }
  __device__ uint32_t first() const { return lane() - member(); }  // a lane of the warp

  __device__ uint32_t largest(uint32_t value) const {
    for (uint32_t apart = 1; apart < size; apart *= 2) {
      const uint32_t other = warp_get(value, lane() ^ apart);
      if (other > value) value = other;
    }
    return value;
  }
  __device__ uint32_t sum(uint32_t value) const {
    for (uint32_t apart = 1; apart < size; apart *= 2) value += warp_get(value, lane() ^ apart);
    return value;
  }
  // The sum of the members before this one. `all`: of all members.
  __device__ uint32_t sum_before(uint32_t value, uint32_t& all) const {
    uint32_t with = value;
    for (uint32_t apart = 1; apart < size; apart *= 2) {
      const bool has = member() >= apart;
      const uint32_t other = warp_get(with, has ? lane() - apart : lane());
      if (has) with += other;
    }
    all = warp_get(with, first() + size - 1);
    return with - value;
  }
};

__device__ inline uint32_t magnitude_bits(float value) {
  return codec::bits_of(value) & codec::kMagnitude;
}

// What is kept of a block: magnitudes above a threshold, and the first ones that equal it. Groups
// are picked in order.
struct KeptOfBlock {
  uint32_t threshold = 0;
  uint32_t equals = 0;  // that are left to be taken
  uint32_t passed = 0;  // elements taken by all members in earlier rounds
  uint32_t taken = 0;   // elements of the block before this group
  uint32_t mask = 0;    // of this group
  bool poisoned = false;

  // `count(least)`: elements of the block whose magnitude is at least that.
  template <typename Count>
  __device__ void choose(uint32_t wanted, Count count) {
    threshold = passed = 0;
    for (uint32_t bit = 1u << 30; bit != 0; bit /= 2)
      if (count(threshold | bit) >= wanted) threshold |= bit;
    equals = wanted - count(threshold + 1);
  }
  // Values of the call's type.
  __device__ void pick(const WarpTeam& team, const CodedValues& values, uint32_t count) {
    uint32_t equal = 0, all = 0;
    mask = 0;
#pragma unroll
    for (uint32_t i = 0; i < kCodedGroup; i++) {
      const uint32_t bits = magnitude_bits(values[i]);
      if (i < count && bits > threshold) mask |= 1u << i;
      if (i < count && bits == threshold) equal |= 1u << i;
    }
    const uint32_t before = team.sum_before(static_cast<uint32_t>(__popc(equal)), all);
    for (uint32_t left = equals > before ? equals - before : 0; left > 0 && equal != 0; left--) {
      mask |= equal & (~equal + 1);  // the lowest bit
      equal &= equal - 1;
    }
    equals = equals > all ? equals - all : 0;
    taken = passed + team.sum_before(static_cast<uint32_t>(__popc(mask)), all);
    passed += all;
  }
  __device__ float seen(float value, uint32_t i) const {
    return poisoned ? codec::float_of(codec::kNan) : (mask >> i & 1u) != 0 ? value : 0.0f;
  }
};

// A block's kept elements and their places, in a message.
template <typename Type>
struct KeptInMessage {
  using Element = typename Type::Element;
  std::byte *elements, *places;
  uint32_t count;

  __device__ uint16_t place(uint32_t k) const {
    return reinterpret_cast<const volatile uint16_t*>(places)[k];
  }
  // Places are in order, so the first one of the group is found by halving.
  __device__ void decode(uint32_t g, uint32_t group, CodedValues& values) const {
    const bool poisoned = place(0) == kPoisonedPlace;
#pragma unroll
    for (uint32_t i = 0; i < kCodedGroup; i++)
      values[i] = poisoned ? codec::float_of(codec::kNan) : 0.0f;
    if (poisoned) return;
    uint32_t k = 0;
    for (uint32_t end = count; k < end;) {
      const uint32_t middle = (k + end) / 2;
      if (place(middle) < g)
        k = middle + 1;
      else
        end = middle;
    }
    for (; k < count && place(k) < g + group; k++) {
      const Element value = reinterpret_cast<const volatile Element*>(elements)[k];
      const uint32_t at = place(k) - g;
#pragma unroll
      for (uint32_t i = 0; i < kCodedGroup; i++)
        if (i == at) values[i] = Type::load(value);
    }
  }
  __device__ void encode(const KeptOfBlock& kept, uint32_t g, const CodedValues& values) const {
    uint32_t k = kept.taken;
#pragma unroll
    for (uint32_t i = 0; i < kCodedGroup; i++) {
      if ((kept.mask >> i & 1u) == 0) continue;
      reinterpret_cast<Element*>(elements)[k] =
          Type::store(kept.poisoned ? codec::float_of(codec::kNan) : values[i]);
      reinterpret_cast<uint16_t*>(places)[k++] =
          kept.poisoned ? kPoisonedPlace : static_cast<uint16_t>(g + i);
    }
  }
  // All members together.
  __device__ void copy_from(const KeptInMessage& from, const WarpTeam& team) const {
    for (uint32_t k = team.member(); k < count; k += team.size) {
      reinterpret_cast<Element*>(elements)[k] =
          reinterpret_cast<const volatile Element*>(from.elements)[k];
      reinterpret_cast<uint16_t*>(places)[k] = from.place(k);
    }
  }
};

}  // namespace weft::cuda
