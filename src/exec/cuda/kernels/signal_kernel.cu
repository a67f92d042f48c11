// Signals of one-sided calls. All counters only grow.
#include "src/exec/cuda/kernels/kernels.h"
#include "src/exec/cuda/kernels/memory.cuh"
#include "src/exec/cuda/signal_arguments.h"

namespace weft::cuda {
namespace {

// Adds to what this rank has signalled a peer, and stores the sum there: links without atomics
// carry stores. Kernels of two streams may store their sums in the wrong order. Each looks again
// after its store, so the last store is the greatest sum.
__device__ void signal(const SignalArguments::Add& add) {
  auto* given = reinterpret_cast<unsigned long long*>(add.given);
  unsigned long long sum =
      atomicAdd(given, static_cast<unsigned long long>(add.signals)) + add.signals;
  for (bool stored = false; !stored;) {
    fence_system();
    store_release_system(add.word, sum);
    fence_system();
    const unsigned long long now = atomicAdd(given, 0ull);
    stored = now == sum;
    sum = now;
  }
}

// What the stream did before is done. The fence makes it visible to peers before the signal.
__global__ void signal_kernel(const __grid_constant__ SignalArguments a) {
  const uint32_t me = threadIdx.x;
  if (me < a.adds) signal(a.add[me]);
  if (me >= a.waits) return;
  const SignalArguments::Wait& wait = a.wait[me];
  // Waits of several streams take different signals.
  const uint64_t goal = atomicAdd(reinterpret_cast<unsigned long long*>(wait.taken),
                                  static_cast<unsigned long long>(wait.signals)) +
                        wait.signals;
  const int peer = wait.peer;
  wait_until(a.watch, peer, [&] { return load_acquire_system(wait.word) >= goal; });
}

}  // namespace

const void* signal_kernel_function() { return reinterpret_cast<const void*>(signal_kernel); }

}  // namespace weft::cuda
