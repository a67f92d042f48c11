// Reductions of the 16-bit floats.
#include "src/exec/cuda/kernels/kernel_table.cuh"
#include "src/exec/cuda/kernels/small_floats.cuh"

namespace weft::cuda {

Kernels half_kernels(ncclDataType_t type, ncclRedOp_t op) {
  return type == ncclFloat16 ? by_operator<Half>(op) : by_operator<BFloat16>(op);
}

}  // namespace weft::cuda
