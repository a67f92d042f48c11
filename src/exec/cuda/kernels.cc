// See kernels.h.
#include "src/exec/cuda/kernels.h"

namespace weft::cuda {

Kernels reduction_kernels(ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclFloat32:
    case ncclFloat64:
      return wide_float_kernels(type, op);
    case ncclFloat16:
    case ncclBfloat16:
      return half_kernels(type, op);
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return float8_kernels(type, op);
    case ncclInt8:
    case ncclUint8:
      return int8_kernels(type, op);
    case ncclInt32:
    case ncclUint32:
      return int32_kernels(type, op);
    default:
      return int64_kernels(type, op);
  }
}

}  // namespace weft::cuda
