// Profiler plugins get events of kernels (KernelCh) whose times are those of CUDA's events.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/gpu_processes.h"
#include "tests/gpu/support/process_rank.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

constexpr int kCalls = 20;
constexpr size_t kFirst = 4;  // earlier calls prepare plans and share memory

struct Seen {
  std::vector<double> us;            // of kernels, in the order of their calls
  std::map<size_t, int> kernels_of;  // per event of a call
};

// The file that the test's plugin wrote (tests/comm/plugins/profiler.cc).
Seen read_events(const std::string& path) {
  Seen seen;
  std::map<size_t, uint64_t> begin;  // by event
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    size_t id = 0;
    size_t parent = 0;
    unsigned long long time = 0;
    if (std::sscanf(line.c_str(), "start %zu kind 64 parent %zu kernel channel 0 time %llu", &id,
                    &parent, &time) == 3) {
      begin[id] = time;
      seen.kernels_of[parent]++;
    } else if (std::sscanf(line.c_str(), "state %zu is 22 bytes %llu", &id, &time) == 2) {
      seen.us.push_back(static_cast<double>(time - begin.at(id)) / 1e3);
    }
  }
  return seen;
}

WEFT_SCENARIO(kernel_times) {
  const std::string path = std::getenv("WEFT_TEST_PROFILE") + std::to_string(context.rank);
  std::vector<double> measured;
  {
    ProcessRank me(context);
    const size_t count = size_t{128} << 20;
    float* data = nullptr;
    WEFT_CUDA(cudaMalloc(&data, count * sizeof(float)));
    WEFT_CUDA(cudaMemset(data, 0, count * sizeof(float)));
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    WEFT_CUDA(cudaEventCreate(&begin));
    WEFT_CUDA(cudaEventCreate(&end));
    for (int i = 0; i < kCalls; i++) {
      WEFT_CUDA(cudaEventRecord(begin, me.stream()));
      WEFT_OK(ncclAllReduce(data, data, count, ncclFloat32, ncclSum, me.comm(), me.stream()));
      WEFT_CUDA(cudaEventRecord(end, me.stream()));
      WEFT_CUDA(cudaStreamSynchronize(me.stream()));
      float ms = 0;
      WEFT_CUDA(cudaEventElapsedTime(&ms, begin, end));
      measured.push_back(ms * 1e3);
    }
    WEFT_CUDA(cudaFree(data));
  }
  const Seen seen = read_events(path);
  unlink(path.c_str());
  ASSERT_EQ(seen.us.size(), static_cast<size_t>(kCalls));
  EXPECT_EQ(seen.kernels_of.size(), static_cast<size_t>(kCalls)) << "a call has one event";
  // The events also measure the launch, about 13 us, and more where the CPU is interrupted.
  std::vector<double> errors;
  for (size_t i = kFirst; i < measured.size(); i++) {
    EXPECT_GE(measured[i], 100) << "too short for this test";
    errors.push_back(std::abs(seen.us[i] - measured[i]) / measured[i]);
  }
  const auto middle = errors.begin() + static_cast<ptrdiff_t>(errors.size() / 2);
  std::nth_element(errors.begin(), middle, errors.end());
  EXPECT_LE(*middle, 0.05) << "between the plugin and CUDA's events, in the median";
}

class ProfiledKernels : public GpuProcesses {};

TEST_F(ProfiledKernels, HaveTheTimesOfCudasEvents) {
  for (const char* version : {"4", "5"})
    play("kernel_times", 2, "",
         {{"NCCL_PROFILER_PLUGIN",
           std::string(WEFT_TEST_PLUGINS) + "/libnccl-profiler-test" + version + ".so"},
          {"WEFT_TEST_PROFILE", "/tmp/weft-kernel-times." + std::to_string(getpid()) + "."},
          {"WEFT_TEST_PROFILE_MASK", "66"}});
}

}  // namespace
}  // namespace weft::test
