// Arithmetic of the 12 element types on the GPU. 16- and 8-bit floats accumulate in float and are
// rounded once, as on the host.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

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
struct Half {
  using Element = uint16_t;
  using Accumulator = float;
  static __device__ float load(uint16_t e) { return __half2float(__ushort_as_half(e)); }
  static __device__ uint16_t store(float a) { return __half_as_ushort(__float2half_rn(a)); }
};
struct BFloat16 {
  using Element = uint16_t;
  using Accumulator = float;
  static __device__ float load(uint16_t e) {
    return __uint_as_float(static_cast<uint32_t>(e) << 16);
  }
  static __device__ uint16_t store(float a) { return __bfloat16_as_ushort(__float2bfloat16_rn(a)); }
};
template <__nv_fp8_interpretation_t Kind>
struct Float8 {
  using Element = uint8_t;
  using Accumulator = float;
  static __device__ float load(uint8_t e) {
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(e, Kind)));
  }
  static __device__ uint8_t store(float a) {
    return __nv_cvt_float_to_fp8(a, __NV_SATFINITE, Kind);
  }
};
using Float8E4M3 = Float8<__NV_E4M3>;
using Float8E5M2 = Float8<__NV_E5M2>;

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
