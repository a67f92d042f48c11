// Arithmetic on the GPU: the types that C++ has, and the operators. See small_floats.cuh for the
// others.
#pragma once

#include <cstdint>
#include <type_traits>

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
