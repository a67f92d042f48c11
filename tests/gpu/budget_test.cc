// Several communicators in flight at once: all thread blocks that wait find an SM, whatever order
// ranks issue their calls in, and others' kernels get on too. Their memory is limited.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>

#include "tests/comm/checks.h"
#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/gpu_processes.h"
#include "tests/gpu/support/large_kernel.h"
#include "tests/gpu/support/process_rank.h"
#include "tests/support/environment.h"

namespace weft::test {
namespace {

constexpr size_t kMostFloats = 1 << 20;
constexpr int kWaitEvery = 20;

// A communicator of some ranks of the world, with a stream and buffers of its own.
struct Group {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float *input = nullptr, *output = nullptr;
  size_t count = 0;  // of the last call
  std::mt19937 sizes;

  void open(ncclComm_t parent, int color, int number) {
    WEFT_OK(ncclCommSplit(parent, color, 0, &comm, nullptr));
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&input), kMostFloats * sizeof(float)),
              cudaSuccess);
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&output), kMostFloats * sizeof(float)),
              cudaSuccess);
    const std::vector<float> ones(kMostFloats, 1.0f);
    EXPECT_EQ(cudaMemcpy(input, ones.data(), kMostFloats * sizeof(float), cudaMemcpyHostToDevice),
              cudaSuccess);
    sizes.seed(static_cast<unsigned>(1000 * number + color));
  }
  // Sizes are drawn alike on all its ranks.
  void launch() {
    count = size_t{1} << (sizes() % 21);
    WEFT_OK(ncclAllReduce(input, output, count, ncclFloat32, ncclSum, comm, stream));
  }
  // With all thread blocks.
  void launch_large() {
    count = kMostFloats;
    WEFT_OK(ncclAllReduce(input, output, count, ncclFloat32, ncclSum, comm, stream));
  }
  void check() const {
    float last = 0;
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(&last, output + count - 1, sizeof last, cudaMemcpyDeviceToHost),
              cudaSuccess);
    int ranks = 0;
    WEFT_OK(ncclCommCount(comm, &ranks));
    EXPECT_EQ(last, static_cast<float>(ranks));
  }
  void close() {
    WEFT_OK(ncclCommDestroy(comm));
    cudaFree(input);
    cudaFree(output);
  }
};

// World and two pair groups per rank, one call per group and round, in one order.
WEFT_SCENARIO(world_and_pairs) {
  ProcessRank me(context);
  std::vector<Group> groups(3);
  groups[0].open(me.comm(), 0, 0);
  groups[1].open(me.comm(), me.rank() / 2, 1);
  groups[2].open(me.comm(), me.rank() % 2, 2);
  int operations = 0;
  for (int round = 0; round < 300; round++)
    for (Group& group : groups) {
      group.launch();
      if (++operations % kWaitEvery != 0) continue;
      me.note("round " + std::to_string(round));
      for (const Group& waited : groups)
        EXPECT_EQ(cudaStreamSynchronize(waited.stream), cudaSuccess);
    }
  for (Group& group : groups) group.check();
  for (Group& group : groups) group.close();
}

// Eight communicators of all ranks. Every rank issues its calls in an order of its own. The
// argument: seconds.
WEFT_SCENARIO(random_orders) {
  ProcessRank me(context);
  std::vector<Group> groups(8);
  for (size_t g = 0; g < groups.size(); g++) groups[g].open(me.comm(), 0, static_cast<int>(g));
  std::mt19937 order(static_cast<unsigned>(me.rank()) + 77);
  std::vector<size_t> next(groups.size());
  std::iota(next.begin(), next.end(), 0);
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::seconds(std::stoi(context.argument));
  // All ranks do as many rounds: the first group says when to stop.
  float* go_on = nullptr;
  EXPECT_EQ(cudaMallocManaged(reinterpret_cast<void**>(&go_on), sizeof(float)), cudaSuccess);
  for (int round = 0;; round++) {
    std::shuffle(next.begin(), next.end(), order);
    for (const size_t g : next) groups[g].launch();
    if (round % kWaitEvery != 0) continue;
    me.note("round " + std::to_string(round));
    for (const Group& group : groups) group.check();
    *go_on = std::chrono::steady_clock::now() < until ? 1 : 0;
    WEFT_OK(ncclAllReduce(go_on, go_on, 1, ncclFloat32, ncclMin, me.comm(), me.stream()));
    EXPECT_EQ(cudaStreamSynchronize(me.stream()), cudaSuccess);
    if (*go_on == 0) break;
  }
  for (Group& group : groups) group.close();
}

// Four communicators wait, each for another late rank. The rest of the GPU is free for kernels
// whose blocks need a whole SM.
WEFT_SCENARIO(large_kernel_while_all_wait) {
  using std::chrono::seconds;
  ProcessRank me(context);
  std::vector<Group> groups(4);
  for (size_t g = 0; g < groups.size(); g++) groups[g].open(me.comm(), 0, static_cast<int>(g));
  const auto is_late = [&](size_t g) { return static_cast<int>(g) % me.nranks() == me.rank(); };
  constexpr int kLargeBlocks = 16;
  unsigned* done = nullptr;
  EXPECT_EQ(cudaMallocManaged(reinterpret_cast<void**>(&done), sizeof(unsigned)), cudaSuccess);
  *done = 0;
  EXPECT_EQ(launch_large_kernel(kLargeBlocks, done, me.stream()), cudaSuccess);
  // Streams are first used here, while nothing waits.
  for (Group& group : groups) group.launch_large();
  for (const Group& group : groups) group.check();
  EXPECT_EQ(cudaStreamSynchronize(me.stream()), cudaSuccess);
  me.note("all but the late ranks");
  Arena arena(1 << 20, Origin::kCudaMalloc);
  me.meet(arena);
  const auto start = std::chrono::steady_clock::now();
  for (size_t g = 0; g < groups.size(); g++)
    if (!is_late(g)) groups[g].launch_large();
  EXPECT_EQ(launch_large_kernel(kLargeBlocks, done, me.stream()), cudaSuccess);
  EXPECT_EQ(finish_within(me.stream(), seconds(2)), "") << large_kernel_bytes() << " bytes";
  std::this_thread::sleep_until(start + seconds(4));
  for (size_t g = 0; g < groups.size(); g++)
    if (is_late(g)) groups[g].launch_large();
  for (const Group& group : groups) group.check();
  EXPECT_EQ(*done, 2u * kLargeBlocks);
  for (Group& group : groups) group.close();
}

// Free memory of the GPU, while no rank does anything.
size_t free_memory(ProcessRank& me, Arena& arena) {
  me.meet(arena);
  size_t free = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  me.meet(arena);
  return free;
}

WEFT_SCENARIO(fifty_communicators) {
  constexpr size_t kCommunicators = 50, kMost = 64;
  ProcessRank me(context);
  Arena arena(1 << 20, Origin::kCudaMalloc);
  const size_t before = free_memory(me, arena);
  std::vector<ncclComm_t> comms(kCommunicators);
  for (ncclComm_t& comm : comms) {
    me.note("another communicator");
    WEFT_OK(ncclCommSplit(me.comm(), 0, 0, &comm, nullptr));
    WEFT_OK(ncclAllReduce(arena.data(), arena.data(), 1, ncclInt8, ncclSum, comm, me.stream()));
    EXPECT_EQ(cudaStreamSynchronize(me.stream()), cudaSuccess);
  }
  const size_t after = free_memory(me, arena);
  const size_t taken = (before - std::min(before, after)) >> 20;
  const size_t ranks = kCommunicators * static_cast<size_t>(me.nranks());
  EXPECT_LE(taken, kMost * ranks) << "MiB for " << ranks << " ranks";
  for (const ncclComm_t comm : comms) {
    me.note("one communicator less");
    WEFT_OK(ncclCommDestroy(comm));
  }
}

class GpuBudget : public GpuProcesses {};

TEST_F(GpuBudget, LetsAWorldAndPairsRunAtOnce) {
  for (int run = 0; run < 3; run++) play("world_and_pairs", 4);
}

// All eight must have reservations. WEFT_TEST_SECONDS sets the length.
TEST_F(GpuBudget, LetsRanksIssueCallsInAnyOrderAcrossCommunicators) {
  const char* text = std::getenv("WEFT_TEST_SECONDS");
  const int seconds = text != nullptr ? std::stoi(text) : 5;
  play("random_orders", 4, std::to_string(seconds), {{"WEFT_BLOCK_SHARE", "25"}},
       std::chrono::seconds(seconds + 40));
}

// All four must have reservations, and every stream a hardware queue.
TEST_F(GpuBudget, LeavesRoomForKernelsThatNeedAWholeSm) {
  play("large_kernel_while_all_wait", 4, "",
       {{"WEFT_BLOCK_SHARE", "50"}, {"CUDA_DEVICE_MAX_CONNECTIONS", "16"}});
}

TEST_F(GpuBudget, HasMemoryForFiftyCommunicators) {
  play("fifty_communicators", 4, "", {}, std::chrono::seconds(90));
}

// Without reservations all calls take one slot, in one order.
TEST_F(GpuBudget, ServesCommunicatorsWithoutReservationsOneByOne) {
  play("world_and_pairs", 4, "", {{"WEFT_BLOCK_SHARE", "0"}});
}

}  // namespace
}  // namespace weft::test
