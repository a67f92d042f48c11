// Picks one of the four operators of a type.
#pragma once

#include "src/exec/cuda/exchange_kernel.cuh"
#include "src/exec/cuda/kernels.h"
#include "src/exec/cuda/packed_kernel.cuh"
#include "src/exec/cuda/program_kernel.cuh"
#include "src/exec/cuda/ring_kernel.cuh"

namespace weft::cuda {

template <typename Type, typename Op>
Kernels function_of() {
  return {reinterpret_cast<const void*>(program_kernel<Type, Op>),
          reinterpret_cast<const void*>(packed_kernel<Type, Op>),
          reinterpret_cast<const void*>(exchange_kernel<Type, Op>),
          reinterpret_cast<const void*>(ring_kernel<Type, Op>)};
}

// Products of signed and unsigned integers are the same bits (sums too, but not averages): `Same`
// saves the second kernel.
template <typename Type, typename Same = Type>
Kernels by_operator(ncclRedOp_t op) {
#ifdef WEFT_ONE_OPERATOR  // to see that kernels compile, not to run them
  return op == ncclSum ? function_of<Type, Sum>() : Kernels{};
#else
  switch (op) {
    case ncclProd:
      return function_of<Same, Prod>();
    case ncclMax:
      return function_of<Type, Max>();
    case ncclMin:
      return function_of<Type, Min>();
    default:
      return function_of<Type, Sum>();
  }
#endif
}

}  // namespace weft::cuda
