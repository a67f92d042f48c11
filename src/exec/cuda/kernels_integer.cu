// Integer reductions, and the kernel that only moves data.
#include "src/exec/cuda/kernel_table.cuh"

namespace weft::cuda {

Kernels integer_kernels(ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclInt8:
      return by_operator<Native<int8_t>, Native<uint8_t>>(op);
    case ncclUint8:
      return by_operator<Native<uint8_t>>(op);
    case ncclInt32:
      return by_operator<Native<int32_t>, Native<uint32_t>>(op);
    case ncclUint32:
      return by_operator<Native<uint32_t>>(op);
    case ncclInt64:
      return by_operator<Native<int64_t>, Native<uint64_t>>(op);
    default:
      return by_operator<Native<uint64_t>>(op);
  }
}

Kernels move_kernels() { return function_of<Bytes, Sum>(); }

}  // namespace weft::cuda
