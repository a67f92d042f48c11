// The kernels as the launcher sees them: addresses of functions, by type and operator.
#pragma once

#include "src/exec/cuda/device_comm.h"

namespace weft::cuda {

// For reductions; sum, prod, max or min.
const void* program_kernel_function(ncclDataType_t type, ncclRedOp_t op);
// For collectives that only move data.
const void* move_kernel_function();
const void* pair_kernel_function();

// Parts of the table above, one per source file.
const void* integer_kernel(ncclDataType_t type, ncclRedOp_t op);
const void* wide_float_kernel(ncclDataType_t type, ncclRedOp_t op);
const void* half_kernel(ncclDataType_t type, ncclRedOp_t op);
const void* float8_kernel(ncclDataType_t type, ncclRedOp_t op);

}  // namespace weft::cuda
