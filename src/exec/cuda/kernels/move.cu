// The kernels that only move data, and the probe.
#include "src/exec/cuda/kernels/kernel_table.cuh"
#include "src/exec/cuda/kernels/small_message_kernel.cuh"

namespace weft::cuda {
namespace {

// Every rank writes to every peer at init. This detects memory that can be mapped but does not
// receive writes, before data is lost.
__global__ void probe_kernel(const __grid_constant__ ProbeArguments a) {
  for (int peer = static_cast<int>(threadIdx.x); peer < a.nranks;
       peer += static_cast<int>(blockDim.x))
    if (a.words[peer] != nullptr)
      *static_cast<volatile uint32_t*>(a.words[peer]->probes(a.nranks) + a.rank) =
          probe_value(a.rank, peer);
  __threadfence_system();
}

__global__ void stamp_kernel(uint64_t* time) {
  uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  *static_cast<volatile uint64_t*>(time) = now;
  __threadfence_system();
}

}  // namespace

Kernels move_kernels() { return function_of<Bytes, Sum>(); }

const void* message_kernel_function(bool few) {
  return few ? reinterpret_cast<const void*>(message_kernel<kFewMessageBytes>)
             : reinterpret_cast<const void*>(message_kernel<kMostMessageBytes>);
}

const void* small_message_kernel_function(bool few) {
  return few ? reinterpret_cast<const void*>(small_message_kernel<kFewSmallMessages>)
             : reinterpret_cast<const void*>(small_message_kernel<2 * kMostKernelMessages>);
}

const void* probe_kernel_function() { return reinterpret_cast<const void*>(probe_kernel); }
const void* stamp_kernel_function() { return reinterpret_cast<const void*>(stamp_kernel); }

}  // namespace weft::cuda
