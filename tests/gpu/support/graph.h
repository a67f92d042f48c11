// A CUDA graph captured from one stream.
#pragma once

#include <cuda_runtime.h>

#include <functional>

namespace weft::test {

// Owned and used by one thread.
class Graph {
 public:
  // Captures what `fn` puts on `stream`. The instance is uploaded at once, so that the first
  // replay allocates nothing; no kernel of the ranks may be waiting meanwhile.
  Graph(cudaStream_t stream, const std::function<void()>& fn,
        cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void replay(cudaStream_t stream) const;
  // Takes over the nodes of another capture with the same shape. False: CUDA refused.
  bool update(const Graph& other);

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t instance_ = nullptr;
};

}  // namespace weft::test
