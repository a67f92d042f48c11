// The kernels of a type, by operator. For bulk data every operator has its own kernel. For small
// data there is one kernel for sums, which are nearly all calls, and one for all other operators.
// Data through host memory is slow enough for one kernel with any operator.
#pragma once

#include "src/exec/cuda/kernels/kernels.h"
#include "src/exec/cuda/kernels/lane_kernel.cuh"
#include "src/exec/cuda/kernels/one_round_kernel.cuh"
#include "src/exec/cuda/kernels/packet_kernel.cuh"
#include "src/exec/cuda/kernels/program_kernel.cuh"
#include "src/exec/cuda/kernels/ring_exchange_kernel.cuh"
#include "src/exec/cuda/kernels/ring_kernel.cuh"

namespace weft::cuda {

// Sums and moves are nearly all calls. Only they have a kernel for few parameters; the others would
// make the library a third larger.
template <typename Type, typename Op>
Kernels::BySize programs() {
  const auto* all =
      reinterpret_cast<const void*>(program_kernel<Type, Op, sizeof(KernelArguments)>);
  if constexpr (std::is_same_v<Op, Sum>) {
    return {reinterpret_cast<const void*>(program_kernel<Type, Op, kFewBytes>), all, kFewBytes};
  } else {
    return {all, all, 0};
  }
}

// Products of signed and unsigned integers have the same bits. (So have sums, but not averages.)
// `Bulk` may be the other type, which saves a kernel.
template <typename Type, typename Op, typename Bulk = Type>
Kernels function_of() {
  using Small = std::conditional_t<std::is_same_v<Op, Sum>, Sum, AllButSum>;
  using Ring = std::conditional_t<std::is_same_v<Type, Bytes>, Sum, AnyOperator>;
  return {programs<Bulk, Op>(),
          {reinterpret_cast<const void*>(ring_kernel<Type, Ring, kFewRingBytes>),
           reinterpret_cast<const void*>(ring_kernel<Type, Ring, sizeof(RingArguments)>),
           kFewRingBytes},
          reinterpret_cast<const void*>(packet_kernel<Type, Small>),
          reinterpret_cast<const void*>(one_round_kernel<Type, Small>),
          reinterpret_cast<const void*>(ring_exchange_kernel<Type, Ring>),
          reinterpret_cast<const void*>(lane_kernel<Type, Small>)};
}

template <typename Type, typename Same = Type>
Kernels by_operator(ncclRedOp_t op) {
#ifdef WEFT_ONE_OPERATOR  // to check that kernels compile, not to run them
  return op == ncclSum ? function_of<Type, Sum>() : Kernels{};
#else
  switch (op) {
    case ncclProd:
      return function_of<Type, Prod, Same>();
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
