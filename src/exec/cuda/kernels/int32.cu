// Reductions of 32-bit integers.
#include "src/exec/cuda/kernels/kernel_table.cuh"

namespace weft::cuda {

Kernels int32_kernels(ncclDataType_t type, ncclRedOp_t op) {
  return type == ncclInt32 ? by_operator<Native<int32_t>, Native<uint32_t>>(op)
                           : by_operator<Native<uint32_t>>(op);
}

}  // namespace weft::cuda
