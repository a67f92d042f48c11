// The kernels that run lanes: of a schedule, and messages of send/recv.
#pragma once

#include "src/exec/cuda/kernels/lane_packet_runs.cuh"

namespace weft::cuda {

#ifdef __CUDACC__
template <typename Type, typename Op>
__device__ __noinline__ void run_lanes(const LaneArguments& a, std::byte* room) {
  __shared__ LaneShared shared;
  auto* items = reinterpret_cast<LaneItem*>(room);
  const uint32_t most = (a.items + gridDim.x - 1) / gridDim.x;
  auto* waits = reinterpret_cast<LaneWait*>(items + most);
  LaneRunner<Type, Op>(a, shared, items, a.has_waits ? waits : nullptr)
      .run(reinterpret_cast<std::byte*>(a.has_waits ? waits + most : waits));
}

template <typename Type, typename Op>
__global__ void __launch_bounds__(kThreads, 1)
    lane_kernel(const __grid_constant__ LaneArguments arguments) {
  extern __shared__ __align__(16) std::byte room[];
  __shared__ LaneArguments a;
  Parameters parameters;
  parameters.load(&arguments, sizeof arguments);
  if (arguments.counters == nullptr) return;  // only launched to be loaded
  parameters.store(&a);
  __syncthreads();
  if (threadIdx.x == 0) {  // all meet before they wait for messages
    a.block_items = reinterpret_cast<LaneItem*>(room);
    a.block_item_count = dealt_items(a.items, blockIdx.x, gridDim.x);
  }
  wait_for_predecessor();
  fetch_scalar(a.reduction, sizeof(typename Type::Element));
  run_lanes<Type, Op>(a, room);
  let_successor_start();
}

// Messages of send/recv: the lanes follow the arguments.
template <size_t kBytes>
__global__ void __launch_bounds__(kThreads, 1)
    message_kernel(const __grid_constant__ ParameterBytes<kBytes> arguments) {
  extern __shared__ __align__(16) std::byte room[];
  __shared__ ParameterBytes<kBytes> copy;
  const auto& given = reinterpret_cast<const MessageArguments&>(arguments);
  if (given.counters == nullptr) return;  // only launched to be loaded
  Parameters parameters;
  parameters.load(&arguments, given.bytes);
  parameters.store(&copy);
  __syncthreads();
  auto& a = reinterpret_cast<MessageArguments&>(copy);
  if (threadIdx.x == 0) {
    a.lanes = copy.bytes + sizeof(MessageArguments);
  }
  __syncthreads();
  wait_for_predecessor();
  run_lanes<Bytes, Sum>(a, room);
  let_successor_start();
}
#endif

}  // namespace weft::cuda
