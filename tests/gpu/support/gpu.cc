// See gpu.h.
#include "tests/gpu/support/gpu.h"

#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/gpu/support/pinned.h"
#include "weft.h"

namespace weft::test {

void cuda_ok(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

std::string gpu_missing() {
  if (weftHostMode() != 0) return "no GPU here, or WEFT_HOST_MODE is set";
  return "";
}

std::string mps_missing() {
  if (std::getenv("WEFT_TEST_MPS") != nullptr) return "";  // mps.sh started it
  const char* directory = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string file = std::string(directory != nullptr ? directory : "/tmp/nvidia-mps") +
                           "/nvidia-cuda-mps-control.pid";
  pid_t pid = 0;
  std::ifstream(file) >> pid;
  if (pid > 0 && kill(pid, 0) == 0) return "";
  return "no MPS daemon runs (" + file + "); tests/gpu/mps.sh starts one";
}

namespace {

// Made at the first call and kept: CUDA may wait for kernels when it allocates or frees.
struct TestStreams {
  static constexpr size_t kBytes = 256 << 10;  // smaller copies do not use the copy engines
  Pinned host{kBytes};                         // also makes the pool of pinned memory
  char* device = nullptr;
  std::vector<cudaStream_t> all = std::vector<cudaStream_t>(kStreams);
  std::set<cudaStream_t> used;
  std::atomic<bool> all_busy = false;

  TestStreams() {
    WEFT_CUDA(cudaMalloc(&device, 2 * kBytes));
    for (cudaStream_t& stream : all)
      WEFT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  static TestStreams& instance() {
    static TestStreams& streams = *std::make_unique<TestStreams>().release();
    return streams;
  }
};

}  // namespace

cudaStream_t stream_number(size_t number) { return TestStreams::instance().all.at(number); }

void use_at_once(std::span<const cudaStream_t> streams) {
  TestStreams& s = TestStreams::instance();
  constexpr size_t kBytes = TestStreams::kBytes;
  std::vector<cudaStream_t> fresh;
  for (const cudaStream_t stream : streams)
    if (s.used.insert(stream).second) fresh.push_back(stream);
  s.all_busy = false;
  for (const cudaStream_t stream : fresh) {
    WEFT_CUDA(cudaLaunchHostFunc(
        stream, [](void* flag) { static_cast<std::atomic<bool>*>(flag)->wait(false); },
        &s.all_busy));
    WEFT_CUDA(cudaMemsetAsync(s.device, 0, 2 * kBytes, stream));
    WEFT_CUDA(
        cudaMemcpyAsync(s.device, s.device + kBytes, kBytes, cudaMemcpyDeviceToDevice, stream));
    WEFT_CUDA(cudaMemcpyAsync(s.host.data(), s.device, kBytes, cudaMemcpyDeviceToHost, stream));
    WEFT_CUDA(cudaMemcpyAsync(s.device, s.host.data(), kBytes, cudaMemcpyHostToDevice, stream));
  }
  s.all_busy = true;
  s.all_busy.notify_all();
  for (const cudaStream_t stream : fresh) WEFT_CUDA(cudaStreamSynchronize(stream));
}

std::string finish_within(cudaStream_t stream, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaSuccess) return "";
    if (state != cudaErrorNotReady) return cudaGetErrorString(state);
    cudaGetLastError();
    if (std::chrono::steady_clock::now() > deadline)
      return "the stream was still busy after " + std::to_string(limit.count()) + " ms";
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

GpuTest::GpuTest(std::chrono::milliseconds limit) : watchdog_(1, limit) {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  watchdog_.note(0, std::string("in test ") + test.test_suite_name() + "." + test.name());
}

void GpuTest::TearDown() {
  EXPECT_STREQ(cudaGetErrorString(cudaDeviceSynchronize()), "no error");
  EXPECT_STREQ(cudaGetErrorString(cudaGetLastError()), "no error");
}

}  // namespace weft::test
