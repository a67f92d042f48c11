// Reductions of the 8-bit floats.
#include "src/exec/cuda/kernels/kernel_table.cuh"
#include "src/exec/cuda/kernels/small_floats.cuh"

namespace weft::cuda {

Kernels float8_kernels(ncclDataType_t type, ncclRedOp_t op) {
  return type == ncclFloat8e4m3 ? by_operator<Float8E4M3>(op) : by_operator<Float8E5M2>(op);
}

}  // namespace weft::cuda
