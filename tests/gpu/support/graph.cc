// See graph.h.
#include "tests/gpu/support/graph.h"

#include "tests/gpu/support/gpu.h"

namespace weft::test {

Graph::Graph(cudaStream_t stream, const std::function<void()>& fn, cudaStreamCaptureMode mode) {
  WEFT_CUDA(cudaStreamBeginCapture(stream, mode));
  fn();
  WEFT_CUDA(cudaStreamEndCapture(stream, &graph_));
  WEFT_CUDA(cudaGraphInstantiate(&instance_, graph_, 0));
  WEFT_CUDA(cudaGraphUpload(instance_, stream));
  WEFT_CUDA(cudaStreamSynchronize(stream));
}

Graph::~Graph() {
  if (instance_ != nullptr) {
    EXPECT_EQ(cudaGraphExecDestroy(instance_), cudaSuccess);
  }
  if (graph_ != nullptr) {
    EXPECT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
  }
}

void Graph::replay(cudaStream_t stream) const { WEFT_CUDA(cudaGraphLaunch(instance_, stream)); }

bool Graph::update(const Graph& other) {
  cudaGraphExecUpdateResultInfo info{};
  const cudaError_t error = cudaGraphExecUpdate(instance_, other.graph_, &info);
  if (error != cudaSuccess) cudaGetLastError();
  return error == cudaSuccess && info.result == cudaGraphExecUpdateSuccess;
}

size_t Graph::kernels() const {
  size_t count = 0;
  WEFT_CUDA(cudaGraphGetNodes(graph_, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  WEFT_CUDA(cudaGraphGetNodes(graph_, nodes.data(), &count));
  size_t found = 0;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    WEFT_CUDA(cudaGraphNodeGetType(node, &type));
    if (type == cudaGraphNodeTypeKernel) found++;
  }
  return found;
}

}  // namespace weft::test
