// Signals of one-sided calls. All counters only grow.
#include "src/exec/cuda/kernels/kernels.h"
#include "src/exec/cuda/kernels/memory.cuh"
#include "src/exec/cuda/signal_arguments.h"

namespace weft::cuda {
namespace {

// What the stream did before is done. The fence makes it visible to peers before the signal.
__global__ void signal_kernel(const __grid_constant__ SignalArguments a) {
  const uint32_t me = threadIdx.x;
  if (me < a.adds) {
    fence_system();
    atomicAdd_system(reinterpret_cast<unsigned long long*>(a.add[me].word),
                     static_cast<unsigned long long>(a.add[me].signals));
  }
  if (me >= a.waits) return;
  const SignalArguments::Wait& wait = a.wait[me];
  const uint64_t goal = *wait.taken + wait.signals;
  const int peer = wait.peer;
  if (wait_until(a.watch, peer, [&] { return load_acquire_system(wait.word) >= goal; }))
    *wait.taken = goal;
}

}  // namespace

const void* signal_kernel_function() { return reinterpret_cast<const void*>(signal_kernel); }

}  // namespace weft::cuda
