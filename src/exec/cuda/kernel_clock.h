// Writes the GPU's time to host memory before and after kernels, for profilers that ask for it.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <vector>

#include "src/exec/cuda/device_store.h"
#include "src/exec/kernel_times.h"

namespace weft::cuda {

// One thread at a time uses it, like its executor, with the executor's device current.
class KernelClock {
 public:
  // The times of the work between begin() and end() on a stream. Times that nobody keeps any more
  // are used again.
  KernelTimes begin(cudaStream_t stream);
  static void end(const KernelTimes& times, cudaStream_t stream);

 private:
  struct Pair {
    PooledResource memory{DeviceStore::Kind::kHostMemory, 2 * sizeof(uint64_t)};
    uint64_t* times() const { return static_cast<uint64_t*>(memory.get()); }
  };
  std::vector<std::shared_ptr<Pair>> pairs_;
};

}  // namespace weft::cuda
