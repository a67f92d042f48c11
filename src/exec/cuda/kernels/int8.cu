// Reductions of 8-bit integers.
#include "src/exec/cuda/kernels/kernel_table.cuh"

namespace weft::cuda {

Kernels int8_kernels(ncclDataType_t type, ncclRedOp_t op) {
  return type == ncclInt8 ? by_operator<Native<int8_t>, Native<uint8_t>>(op)
                          : by_operator<Native<uint8_t>>(op);
}

}  // namespace weft::cuda
