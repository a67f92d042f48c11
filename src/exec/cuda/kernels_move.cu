// The kernels that only move data.
#include "src/exec/cuda/kernel_table.cuh"

namespace weft::cuda {

Kernels move_kernels() { return function_of<Bytes, Sum>(); }

}  // namespace weft::cuda
