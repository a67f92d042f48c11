// A CUDA graph captured from one stream.
#pragma once

#include <cuda_runtime.h>

#include <functional>

namespace weft::test {

// Owned and used by one thread.
class Graph {
 public:
  // Captures the work that `fn` puts on `stream`. The instance is uploaded at once, so that the
  // first replay allocates nothing. No kernel of the ranks may wait meanwhile.
  Graph(cudaStream_t stream, const std::function<void()>& fn,
        cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void replay(cudaStream_t stream) const;
  size_t kernels() const;
  // Takes over the nodes of another capture with the same shape. Returns false if CUDA refuses.
  bool update(const Graph& other);

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t instance_ = nullptr;
};

}  // namespace weft::test
