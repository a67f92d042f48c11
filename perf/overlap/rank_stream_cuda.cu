// See rank_stream.h. GPUs: compute is a kernel of a few threads that lasts as long as it is told.
// It takes no multiprocessor away, so what slows a step down is waiting.
#include <cuda_runtime.h>

#include <mutex>
#include <stdexcept>
#include <string>

#include "perf/common/device.h"
#include "perf/overlap/rank_stream.h"
#include "weft.h"

namespace weft::perf::overlap {
namespace {

void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

__global__ void spin(long long nanoseconds) {
  long long began = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(began));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - began < nanoseconds);
}

class GpuMark : public Mark {
 public:
  GpuMark() { check_cuda(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~GpuMark() override { cudaEventDestroy(event_); }
  GpuMark(const GpuMark&) = delete;
  GpuMark& operator=(const GpuMark&) = delete;
  cudaEvent_t event() const { return event_; }
  double us_since(const Mark& earlier) const override {
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, dynamic_cast<const GpuMark&>(earlier).event_, event_),
               "cudaEventElapsedTime");
    return ms * 1e3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class GpuStream : public RankStream {
 public:
  GpuStream(int rank, bool urgent) {
    device::select(rank);
    int least = 0, greatest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream priorities");
    check_cuda(
        cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, urgent ? greatest : least),
        "cudaStreamCreateWithPriority");
    // Streams that are first used at the same time can get one hardware queue (perf/queues).
    static std::mutex turns;
    const std::lock_guard lock(turns);
    spin<<<1, 1, 0, stream_>>>(1000);
    check_cuda(cudaStreamSynchronize(stream_), "first use of a stream");
  }
  ~GpuStream() override { cudaStreamDestroy(stream_); }
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  void compute(double us) override {
    spin<<<1, 32, 0, stream_>>>(static_cast<long long>(us * 1e3));
    check_cuda(cudaGetLastError(), "spin");
  }
  void call(const std::function<void(cudaStream_t)>& collective) override { collective(stream_); }
  MarkPtr mark() override {
    auto mark = std::make_shared<GpuMark>();
    check_cuda(cudaEventRecord(mark->event(), stream_), "cudaEventRecord");
    return mark;
  }
  void wait(const MarkPtr& mark) override {
    check_cuda(cudaStreamWaitEvent(stream_, dynamic_cast<GpuMark&>(*mark).event(), 0),
               "cudaStreamWaitEvent");
  }
  void finish() override { check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace

std::unique_ptr<RankStream> make_stream(int rank, bool urgent) {
  if (weftHostMode() == 1) return make_host_stream();
  return std::make_unique<GpuStream>(rank, urgent);
}

}  // namespace weft::perf::overlap
