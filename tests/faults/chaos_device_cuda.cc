// The device of a random run on a GPU. See chaos_device.h.
#include <cuda_runtime.h>

#include <map>
#include <stdexcept>
#include <vector>

#include "tests/faults/chaos_device.h"
#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/graph.h"
#include "tests/gpu/support/pinned.h"

namespace weft::test {
namespace {

class GpuDevice : public ChaosDevice {
 public:
  GpuDevice(size_t bytes, int streams) {
    WEFT_CUDA(cudaSetDevice(0));
    for (int s = 0; s < streams; s++) streams_.push_back(stream_number(static_cast<size_t>(s)));
    use_at_once(streams_);
    WEFT_CUDA(cudaMalloc(&memory_, bytes));
  }
  ~GpuDevice() override {
    graphs_.clear();
    cudaFree(memory_);
  }
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;

  char* memory() const override { return static_cast<char*>(memory_); }
  cudaStream_t stream(int number) const override {
    return streams_.at(static_cast<size_t>(number));
  }
  void write(void* device, const void* host, size_t bytes) override {
    upload(device, host, bytes, streams_[0]);
  }
  void read(void* host, const void* device, size_t bytes) override {
    download(host, device, bytes, streams_[0]);
  }
  bool idle() override {
    for (const cudaStream_t stream : streams_) {
      const cudaError_t state = cudaStreamQuery(stream);
      if (state == cudaErrorNotReady) return false;
      cuda_ok(state, "cudaStreamQuery");
    }
    return true;
  }
  ncclResult_t record(size_t graph, const std::function<ncclResult_t()>& fn) override {
    ncclResult_t result = ncclSuccess;
    graphs_[graph] = std::make_unique<Graph>(streams_[0], [&] { result = fn(); });
    return result;
  }
  ncclResult_t replay(size_t graph, int on_stream) override {
    graphs_.at(graph)->replay(stream(on_stream));
    return ncclSuccess;
  }
  void forget_graphs() override { graphs_.clear(); }
  size_t free_bytes() const override {
    size_t free = 0, all = 0;
    WEFT_CUDA(cudaMemGetInfo(&free, &all));
    return free;
  }

 private:
  void* memory_ = nullptr;
  std::vector<cudaStream_t> streams_;
  std::map<size_t, std::unique_ptr<Graph>> graphs_;
};

}  // namespace

std::unique_ptr<ChaosDevice> make_gpu_device(size_t bytes, int streams) {
  return std::make_unique<GpuDevice>(bytes, streams);
}

}  // namespace weft::test
