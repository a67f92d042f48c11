// Reductions of 64-bit integers.
#include "src/exec/cuda/kernels/kernel_table.cuh"

namespace weft::cuda {

Kernels int64_kernels(ncclDataType_t type, ncclRedOp_t op) {
  return type == ncclInt64 ? by_operator<Native<int64_t>, Native<uint64_t>>(op)
                           : by_operator<Native<uint64_t>>(op);
}

}  // namespace weft::cuda
