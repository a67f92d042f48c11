// 16- and 8-bit floats on the GPU. They accumulate in float and are rounded once, as on the host.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace weft::cuda {

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

}  // namespace weft::cuda
