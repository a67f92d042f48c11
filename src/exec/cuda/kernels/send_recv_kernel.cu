// Kernels of send and receive. They have their own file so that the compiler specializes copy() for
// its only caller.
#include "src/exec/cuda/kernels/kernels.h"
#include "src/exec/cuda/kernels/send_recv_kernel.cuh"

namespace weft::cuda {
namespace {

template <bool Packets>
__global__ void __launch_bounds__(kThreads, Packets ? kEarlyKernels : 1)
    send_recv_kernel(const __grid_constant__ SendRecvArguments arguments) {
  alignas(16) __shared__ std::byte parameters[sizeof(SendRecvArguments)];
  __shared__ SendRecvState shared;
  auto& a = *reinterpret_cast<SendRecvArguments*>(parameters);
  if (arguments.mine == nullptr) return;  // only launched to be loaded
  const uint32_t ports = arguments.ports;
  Parameters fetched;
  fetched.load(&arguments, sizeof a);
  fetched.store(&a);
  if (Packets) {
    wait_for_predecessor();
    let_successor_start();
  }
  const uint4 counters = PacketPorts::ask(arguments.mine, ports);
  shared.ports.take(counters, ports);
  if (threadIdx.x == 0) shared.stopped = false;
  __syncthreads();
  SendRecvRunner<Packets>(a, shared).run();
}

}  // namespace

const void* send_recv_kernel_function(bool packets) {
  return packets ? reinterpret_cast<const void*>(send_recv_kernel<true>)
                 : reinterpret_cast<const void*>(send_recv_kernel<false>);
}

}  // namespace weft::cuda
