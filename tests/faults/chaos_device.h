// Memory, streams and graphs of one rank of a random run. On a GPU they are CUDA's. In host mode
// memory is plain, streams are null and a graph is a function that is called again, so that the
// same run is tested without a GPU.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "nccl.h"

namespace weft::test {

// Used by one thread. Functions throw std::runtime_error with CUDA's text.
class ChaosDevice {
 public:
  virtual ~ChaosDevice() = default;
  virtual char* memory() const = 0;
  virtual cudaStream_t stream(int number) const = 0;
  // Copies, and returns when that is done. The streams must be idle.
  virtual void write(void* device, const void* host, size_t bytes) = 0;
  virtual void read(void* host, const void* device, size_t bytes) = 0;
  // True: all work on all streams is done.
  virtual bool idle() = 0;
  // Captures the work that `fn` puts on stream 0, and returns its result. The streams must be idle.
  virtual ncclResult_t record(size_t graph, const std::function<ncclResult_t()>& fn) = 0;
  virtual ncclResult_t replay(size_t graph, int on_stream) = 0;
  virtual void forget_graphs() = 0;
  // Free memory of the GPU, which all its processes share. 0 in host mode.
  virtual size_t free_bytes() const = 0;
};

std::unique_ptr<ChaosDevice> make_host_device(size_t bytes);
#ifdef WEFT_CHAOS_CUDA
std::unique_ptr<ChaosDevice> make_gpu_device(size_t bytes, int streams);
#endif

}  // namespace weft::test
