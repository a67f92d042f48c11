// Element types and reduction operators as executors see them. Plain values, for host and device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "include/nccl.h"

namespace weft {

inline constexpr size_t element_size(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

// A reduction combines elements with `op` (sum, prod, max or min). Only a sum can pre-multiply the
// caller's input by a scalar, or divide the result by the number of ranks. GPU kernels of the other
// operators cannot.
struct Reduction {
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  bool premultiply = false;
  uint32_t divide_by = 0;    // 0: not an average
  uint64_t scalar_bits = 0;  // the pre-multiplier, an element of `type` in the low bytes
  // If set, the GPU reads the pre-multiplier here when the call runs.
  const void* scalar_at = nullptr;
  float scale = 0;  // if not 0, the pre-multiplier in full precision instead

  bool operator==(const Reduction&) const = default;
};

}  // namespace weft
