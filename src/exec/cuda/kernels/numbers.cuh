// Arithmetic on the GPU: the operators, and the types that C++ has. small_floats.cuh has the
// others.
#pragma once

#include <cstdint>
#include <type_traits>

#include "include/nccl.h"

namespace weft::cuda {

template <typename T>
struct Native {
  using Element = T;
  using Accumulator = T;
  static __device__ Accumulator load(Element e) { return e; }
  static __device__ Element store(Accumulator a) { return a; }
};
struct Sum {
  template <typename T>
  static __device__ T apply(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct Prod {
  template <typename T>
  static __device__ T apply(T a, T b) {
    return static_cast<T>(a * b);
  }
};
struct Max {
  template <typename T>
  static __device__ T apply(T a, T b) {
    return a < b ? b : a;
  }
};
struct Min {
  template <typename T>
  static __device__ T apply(T a, T b) {
    return b < a ? b : a;
  }
};

// Operators that a kernel learns at run time: one kernel instead of several.
struct AllButSum {};
struct AnyOperator {};
template <typename Op>
inline constexpr bool kToldLater = std::is_same_v<Op, AllButSum> || std::is_same_v<Op, AnyOperator>;
// Averages and pre-multiplied sums are sums, see Reduction. The other operators have no code for
// scaling and dividing.
template <typename Op>
inline constexpr bool kSums = std::is_same_v<Op, Sum> || std::is_same_v<Op, AnyOperator>;

// Calls `work` with the operator itself. `told` matters only if Op leaves the operator open.
template <typename Op, typename Work>
__device__ __forceinline__ void with_operator([[maybe_unused]] ncclRedOp_t told, Work work) {
  if constexpr (!kToldLater<Op>) {
    work(Op{});
  } else if (told == ncclProd) {
    work(Prod{});
  } else if (told == ncclMax) {
    work(Max{});
  } else if (!kSums<Op> || told == ncclMin) {
    work(Min{});
  } else if constexpr (kSums<Op>) {
    work(Sum{});
  }
}

// Applies the operator to two elements.
template <typename Op, typename T>
__device__ __forceinline__ T apply(T a, T b, ncclRedOp_t told) {
  with_operator<Op>(told, [&](auto op) { a = op.apply(a, b); });
  return a;
}

// The number of ranks may not fit into a small type.
template <typename T>
__device__ T divide(T sum, uint32_t by) {
  if constexpr (std::is_integral_v<T>) {
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    return static_cast<T>(static_cast<Wide>(sum) / static_cast<Wide>(by));
  } else {
    return sum / static_cast<T>(by);
  }
}

}  // namespace weft::cuda
