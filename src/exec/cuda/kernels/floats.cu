// Reductions of float and double.
#include "src/exec/cuda/kernels/kernel_table.cuh"

namespace weft::cuda {

Kernels wide_float_kernels(ncclDataType_t type, ncclRedOp_t op) {
  return type == ncclFloat32 ? by_operator<Native<float>>(op) : by_operator<Native<double>>(op);
}

}  // namespace weft::cuda
