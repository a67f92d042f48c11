// More ranks than kernels for special shapes take: 64, as threads of 4 processes that share the
// GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <thread>

#include "tests/comm/checks.h"
#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/gpu_processes.h"
#include "tests/support/watchdog.h"

namespace weft::test {
namespace {

constexpr int kThreads = 16, kProcesses = 4, kAllRanks = kThreads * kProcesses;

float value(int rank, size_t i) { return static_cast<float>((rank * 131 + i * 7) % 1000); }

// One of the ranks, with buffers for `count` floats of every rank.
struct ManyRank {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float *input = nullptr, *output = nullptr;
  float* host = nullptr;  // pinned: a copy to pageable memory may wait for other ranks' kernels

  std::span<const float> result(size_t count) const {
    EXPECT_EQ(cudaMemcpyAsync(host, output, count * sizeof(float), cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    return {host, count};
  }
};

void run_all(const ManyRank& me, int rank, size_t count) {
  WEFT_OK(ncclAllReduce(me.input, me.output, count, ncclFloat32, ncclSum, me.comm, me.stream));
  std::span<const float> got = me.result(count);
  for (const size_t i : {size_t{0}, count / 2, count - 1}) {
    float sum = 0;
    for (int from = 0; from < kAllRanks; from++) sum += value(from, i);
    EXPECT_EQ(got[i], sum) << "all_reduce of " << count << ", element " << i;
  }
  WEFT_OK(ncclAllGather(me.input, me.output, count, ncclFloat32, me.comm, me.stream));
  got = me.result(count * kAllRanks);
  for (int from = 0; from < kAllRanks; from++)
    EXPECT_EQ(got[static_cast<size_t>(from) * count + count - 1], value(from, count - 1))
        << "all_gather of " << count;
  WEFT_OK(ncclAlltoAll(me.input, me.output, count, ncclFloat32, me.comm, me.stream));
  got = me.result(count * kAllRanks);
  for (int from = 0; from < kAllRanks; from++)
    EXPECT_EQ(got[static_cast<size_t>(from) * count],
              value(from, static_cast<size_t>(rank) * count))
        << "alltoall of " << count << " from " << from;
  // Messages to every other rank, itself included.
  WEFT_OK(ncclGroupStart());
  for (int peer = rank % 2; peer < kAllRanks; peer += 2)
    WEFT_OK(ncclSend(me.input, count, ncclFloat32, peer, me.comm, me.stream));
  for (int peer = rank % 2; peer < kAllRanks; peer += 2)
    WEFT_OK(ncclRecv(me.output + static_cast<size_t>(peer) * count, count, ncclFloat32, peer,
                     me.comm, me.stream));
  WEFT_OK(ncclGroupEnd());
  got = me.result(count * kAllRanks);
  for (int from = rank % 2; from < kAllRanks; from += 2)
    EXPECT_EQ(got[static_cast<size_t>(from) * count + count - 1], value(from, count - 1))
        << "send/recv of " << count << " from " << from;
}

WEFT_SCENARIO(many_ranks) {
  constexpr size_t kMost = 20000;
  Watchdog watchdog(1, std::chrono::seconds(60));
  WEFT_CUDA(cudaSetDevice(0));
  std::vector<ManyRank> ranks(kThreads);
  std::vector<float> host(kMost * kAllRanks);
  for (int t = 0; t < kThreads; t++) {
    ManyRank& me = ranks[static_cast<size_t>(t)];
    const int rank = context.rank * kThreads + t;
    WEFT_CUDA(cudaMalloc(reinterpret_cast<void**>(&me.input), host.size() * sizeof(float)));
    WEFT_CUDA(cudaMalloc(reinterpret_cast<void**>(&me.output), host.size() * sizeof(float)));
    WEFT_CUDA(cudaMallocHost(reinterpret_cast<void**>(&me.host), host.size() * sizeof(float)));
    WEFT_CUDA(cudaStreamCreateWithFlags(&me.stream, cudaStreamNonBlocking));
    for (size_t i = 0; i < host.size(); i++) host[i] = value(rank, i);
    // Also the first use of the stream, one after the other.
    WEFT_CUDA(cudaMemcpyAsync(me.input, host.data(), host.size() * sizeof(float),
                              cudaMemcpyHostToDevice, me.stream));
    WEFT_CUDA(cudaMemsetAsync(me.output, 0, 4, me.stream));
    WEFT_CUDA(cudaStreamSynchronize(me.stream));
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; t++)
    threads.emplace_back([&, t] {
      ManyRank& me = ranks[static_cast<size_t>(t)];
      const int rank = context.rank * kThreads + t;
      WEFT_CUDA(cudaSetDevice(0));
      if (!succeeded(ncclCommInitRank(&me.comm, kAllRanks, context.ids.at(0), rank), "init"))
        return;
      for (const size_t count : {size_t{1}, size_t{1000}, kMost}) {
        if (t == 0) watchdog.note(0, "count " + std::to_string(count));
        run_all(me, rank, count);
      }
      WEFT_OK(ncclCommDestroy(me.comm));
    });
  for (std::thread& thread : threads) thread.join();
}

class ManyRanks : public GpuProcesses {};

TEST_F(ManyRanks, AsThreadsOfSeveralProcessesFinishTheirCalls) {
  play("many_ranks", kProcesses, "", {{"CUDA_DEVICE_MAX_CONNECTIONS", "20"}},
       std::chrono::seconds(80));
}

}  // namespace
}  // namespace weft::test
