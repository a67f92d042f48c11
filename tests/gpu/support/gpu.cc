// See gpu.h.
#include "tests/gpu/support/gpu.h"

#include <signal.h>

#include <cstdlib>
#include <fstream>
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

// CUDA deals out hardware queues when streams are first used, badly where ranks come at once
// (perf/results/h200.md). The library sees to its own launches, not to a test's copies and graphs.
void use_once(cudaStream_t stream, const Pinned& host, char* device, size_t bytes) {
  WEFT_CUDA(cudaMemsetAsync(device, 0, 2 * bytes, stream));
  WEFT_CUDA(cudaMemcpyAsync(device, device + bytes, bytes, cudaMemcpyDeviceToDevice, stream));
  WEFT_CUDA(cudaMemcpyAsync(host.data(), device, bytes, cudaMemcpyDeviceToHost, stream));
  WEFT_CUDA(cudaMemcpyAsync(device, host.data(), bytes, cudaMemcpyHostToDevice, stream));
  WEFT_CUDA(cudaStreamSynchronize(stream));
}

}  // namespace

cudaStream_t stream_number(size_t number) {
  static const std::vector<cudaStream_t> streams = [] {
    constexpr size_t kBytes = 256 << 10;  // smaller copies do not use the copy engines
    const Pinned host(kBytes);            // makes the pinned memory, too
    void* device = nullptr;
    WEFT_CUDA(cudaMalloc(&device, 2 * kBytes));
    std::vector<cudaStream_t> made(kStreams);
    for (cudaStream_t& stream : made) {
      WEFT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      use_once(stream, host, static_cast<char*>(device), kBytes);
    }
    WEFT_CUDA(cudaFree(device));
    return made;
  }();
  return streams.at(number);
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
