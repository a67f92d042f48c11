// See kernels.h.
#include "src/exec/cuda/kernels.h"

namespace weft::cuda {

const void* program_kernel_function(ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclFloat32:
    case ncclFloat64:
      return wide_float_kernel(type, op);
    case ncclFloat16:
    case ncclBfloat16:
      return half_kernel(type, op);
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return float8_kernel(type, op);
    default:
      return integer_kernel(type, op);
  }
}

}  // namespace weft::cuda
