// Processes use plain buffers where they lie: never stale, and nothing is left behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <random>
#include <thread>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/gpu_processes.h"
#include "tests/gpu/support/own_log.h"
#include "tests/gpu/support/process_rank.h"
#include "tests/gpu/support/waiting.h"
#include "tests/support/patterns.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr size_t kMB = size_t{1} << 20;

size_t free_bytes() {
  size_t free = 0, total = 0;
  WEFT_CUDA(cudaMemGetInfo(&free, &total));
  return free;
}

// Sums bytes over all ranks in place, and checks all of them. "" or the error.
std::string sum_bytes(ProcessRank& me, void* memory, size_t bytes, int number) {
  const auto of_rank = [&](int rank) { return (rank * 5 + number) % 13; };
  int expected = 0;
  for (int rank = 0; rank < me.nranks(); rank++) expected += of_rank(rank);
  WEFT_CUDA(cudaMemsetAsync(memory, of_rank(me.rank()), bytes, me.stream()));
  WEFT_OK(ncclAllReduce(memory, memory, bytes, ncclInt8, ncclSum, me.comm(), me.stream()));
  std::vector<char> seen(bytes);
  // NICs of the tests copy with CUDA, and must not be behind a copy that waits for them.
  WEFT_CUDA(cudaStreamSynchronize(me.stream()));
  WEFT_CUDA(cudaMemcpyAsync(seen.data(), memory, bytes, cudaMemcpyDeviceToHost, me.stream()));
  WEFT_CUDA(cudaStreamSynchronize(me.stream()));
  if (seen[0] == expected && std::memcmp(seen.data(), seen.data() + 1, bytes - 1) == 0) return "";
  const auto wrong = std::find_if(seen.begin(), seen.end(), [&](char c) { return c != expected; });
  return "call " + std::to_string(number) + ": byte " + std::to_string(wrong - seen.begin()) +
         " is " + std::to_string(+*wrong) + " and not " + std::to_string(expected);
}

// Calls until background threads have had time to share the memory.
void use_for_a_while(ProcessRank& me, void* memory, size_t bytes) {
  for (int i = 0; i < 20; i++) {
    me.note("sharing, call " + std::to_string(i));
    EXPECT_EQ(sum_bytes(me, memory, bytes, i), "");
    std::this_thread::sleep_for(milliseconds(5));
  }
}

// The argument: an origin of memory that nobody registers.
WEFT_SCENARIO(plain_buffers) {
  ProcessRank me(context);
  {
    Arena arena(64 * kMB, context.argument == "virtual" ? Origin::kVirtual : Origin::kCudaMalloc);
    use_for_a_while(me, arena.data() + kMB / 2, 40 * kMB);
    me.run(process_cases(me.nranks(), 10, 3), arena);
    me.meet(arena);
  }
  const std::string log = own_log();
  const bool shares = says(log, "that rank [0-9]+ shares are used where they are");
  EXPECT_EQ(shares, std::getenv("WEFT_SHARE_BUFFERS") == nullptr) << log;
}

// 1,000 calls. In between every rank frees buffers and allocates others, often at the same address.
WEFT_SCENARIO(exchanged_buffers) {
  ProcessRank me(context);
  constexpr size_t kBuffers = 6, kEach = 5 * kMB;
  const bool virtual_memory = context.argument == "virtual";
  std::mt19937 own(static_cast<unsigned>(me.rank()) + 1);
  std::vector<std::unique_ptr<Arena>> buffers(kBuffers);
  const auto make = [&] {
    return std::make_unique<Arena>((6 + own() % 12) * kMB,
                                   virtual_memory ? Origin::kVirtual : Origin::kCudaMalloc);
  };
  for (auto& buffer : buffers) buffer = make();
  int same_address = 0, failures = 0;
  for (int round = 0; round < 1000; round++) {
    me.note("round " + std::to_string(round));
    auto& buffer = buffers[own() % kBuffers];
    if (own() % 5 == 0) {
      const char* before = buffer->data();
      buffer.reset();
      buffer = make();
      same_address += buffer->data() == before ? 1 : 0;
    }
    const std::string bad = sum_bytes(me, buffer->data() + own() % 8 * 4096, kEach, round);
    if (!bad.empty() && ++failures <= 3) ADD_FAILURE() << bad;
  }
  EXPECT_GT(same_address, 10) << "the test is too easy";
  me.meet(*buffers[0]);
}

// Whether almost all of `bytes` are free again within a second.
void expect_given_back(size_t free_before, size_t bytes, milliseconds limit) {
  const auto start = Clock::now();
  const auto enough = [&] { return free_bytes() + bytes / 20 >= free_before; };
  while (!enough() && Clock::now() - start < limit) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_TRUE(enough()) << (free_before - free_bytes()) / kMB << " of " << bytes / kMB
                        << " MiB are not free";
}

WEFT_SCENARIO(freed_buffers) {
  constexpr size_t kEach = 256 * kMB, kBuffers = 4;
  ProcessRank me(context);
  Arena still(kMB, Origin::kCudaMalloc);
  me.meet(still);
  const size_t before = free_bytes();
  me.meet(still);
  {
    std::vector<std::unique_ptr<Arena>> buffers;
    for (size_t i = 0; i < kBuffers; i++)
      buffers.push_back(std::make_unique<Arena>(
          kEach, context.argument == "virtual" ? Origin::kVirtual : Origin::kCudaMalloc));
    for (const auto& buffer : buffers) use_for_a_while(me, buffer->data(), 4 * kMB);
    me.meet(still);
  }
  me.meet(still);  // all have freed theirs
  expect_given_back(before, kBuffers * kEach * static_cast<size_t>(me.nranks()),
                    milliseconds(1000));
  me.meet(still);
}

// Rank 1 dies, or does not take part in a call ("away"). The others abort and free their memory.
WEFT_SCENARIO(shared_buffers_of_the_dead) {
  constexpr size_t kEach = 512 * kMB;
  ProcessRank me(context);
  Arena still(kMB, Origin::kCudaMalloc);
  me.meet(still);
  const size_t before = free_bytes();
  me.meet(still);
  {
    Arena arena(kEach, Origin::kCudaMalloc);
    use_for_a_while(me, arena.data(), 4 * kMB);
    if (me.rank() == 1 && context.argument == "killed") {
      WEFT_CUDA(cudaDeviceSynchronize());
      raise(SIGKILL);
    }
    if (me.rank() != 1) {
      WEFT_OK(ncclAllReduce(arena.data(), arena.data(), kMB, ncclFloat32, ncclSum, me.comm(),
                            me.stream()));
      if (context.argument == "killed") {
        EXPECT_NE(async_error_within(me.comm(), seconds(10)), ncclSuccess);
      }
    }
    expect_abort_succeeds(me.take());
    EXPECT_EQ(finish_within(me.stream(), seconds(5)), "");
  }
  expect_given_back(before, kEach * static_cast<size_t>(me.nranks()), milliseconds(10000));
}

// Rank 0 maps what rank 1 shares while its own kernel waits for rank 1. Its thread must not be
// blocked meanwhile: a program may wait there for what rank 1 does first.
WEFT_SCENARIO(mapping_beside_a_waiting_kernel) {
  ProcessRank me(context);
  Arena still(kMB, Origin::kCudaMalloc);
  cudaStream_t other = nullptr;
  WEFT_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  WEFT_CUDA(cudaMemsetAsync(still.data(), 0, 100, other));
  double slowest = 0;
  for (int round = 0; round < 5; round++) {
    me.note("round " + std::to_string(round));
    Arena arena(64 * kMB, Origin::kCudaMalloc);
    me.meet(still);
    EXPECT_EQ(sum_bytes(me, arena.data(), 8 * kMB, round), "");  // rank 1 begins to share it
    std::this_thread::sleep_for(milliseconds(me.rank() == 1 ? 400 : 20));
    WEFT_OK(ncclAllReduce(arena.data(), arena.data(), 2 * kMB, ncclFloat32, ncclSum, me.comm(),
                          me.stream()));
    for (int i = 0; i < 100 && me.rank() == 0; i++) {
      const auto start = Clock::now();
      WEFT_CUDA(cudaMemsetAsync(still.data(), 0, 100, other));
      const std::chrono::duration<double, std::milli> took = Clock::now() - start;
      slowest = std::max(slowest, took.count());
      std::this_thread::sleep_for(milliseconds(1));
    }
    WEFT_CUDA(cudaStreamSynchronize(me.stream()));
    me.meet(still);
  }
  EXPECT_LT(slowest, 100) << "ms for a launch beside a mapping";
  WEFT_CUDA(cudaStreamDestroy(other));
}

// Rank 0 calls with a new buffer while its kernel before waits for rank 1. The call asks CUDA for
// the buffer's handle, and must not wait for the kernel.
WEFT_SCENARIO(new_buffer_beside_a_waiting_kernel) {
  ProcessRank me(context);
  Arena still(8 * kMB, Origin::kCudaMalloc);
  use_for_a_while(me, still.data(), 4 * kMB);
  double slowest = 0;
  for (int round = 0; round < 5; round++) {
    me.note("round " + std::to_string(round));
    Arena fresh(8 * kMB, context.argument == "virtual" ? Origin::kVirtual : Origin::kCudaMalloc);
    me.meet(still);
    if (me.rank() == 1) std::this_thread::sleep_for(milliseconds(300));
    for (Arena* arena : {&still, &fresh}) {
      const auto start = Clock::now();
      WEFT_OK(ncclAllReduce(arena->data(), arena->data(), kMB, ncclFloat32, ncclSum, me.comm(),
                            me.stream()));
      const std::chrono::duration<double, std::milli> took = Clock::now() - start;
      slowest = std::max(slowest, took.count());
    }
    WEFT_CUDA(cudaStreamSynchronize(me.stream()));
    me.meet(still);
  }
  EXPECT_LT(slowest, 100) << "ms for a call";
}

class SharedBuffers : public GpuProcesses {
 protected:
  static Environment logged(const Environment& more = {}) {
    Environment all = {{"NCCL_DEBUG", "INFO"},
                       {"NCCL_DEBUG_SUBSYS", "REG"},
                       {"NCCL_DEBUG_FILE", testing::TempDir() + "weft-shared-buffers.%p"}};
    all.insert(more.begin(), more.end());
    return all;
  }
};

TEST_F(SharedBuffers, AreUsedWhereTheyLie) {
  for (const char* origin : {"cudaMalloc", "virtual"}) play("plain_buffers", 4, origin, logged());
}
TEST_F(SharedBuffers, AreCopiedWhereSharingIsOff) {
  play("plain_buffers", 2, "cudaMalloc", logged({{"WEFT_SHARE_BUFFERS", "0"}}));
}
TEST_F(SharedBuffers, AreUsedWhereTheyLieByLanes) {
  play("plain_buffers", 4, "cudaMalloc", logged({{"WEFT_PLAN", "all_reduce=ring"}}));
}
TEST_F(SharedBuffers, ThatAreExchangedGiveRightResults) {
  play("exchanged_buffers", 4, "cudaMalloc", {}, seconds(90));
}
TEST_F(SharedBuffers, OfExpandableSegmentsThatAreExchangedGiveRightResults) {
  play("exchanged_buffers", 4, "virtual", {}, seconds(90));
}
TEST_F(SharedBuffers, ThatAreExchangedGiveRightResultsUnderASmallCap) {
  play("exchanged_buffers", 4, "cudaMalloc", {{"WEFT_SHARE_BYTES", "32M"}}, seconds(90));
}
TEST_F(SharedBuffers, ThatAreFreedAreGivenBackWithinASecond) {
  for (const char* origin : {"cudaMalloc", "virtual"}) play("freed_buffers", 4, origin);
}
TEST_F(SharedBuffers, AreGivenBackAfterAnAbort) { play("shared_buffers_of_the_dead", 3, "away"); }
TEST_F(SharedBuffers, AreGivenBackAfterADeath) {
  ProcessOptions options;
  options.limit = seconds(60);
  options.argument = "killed";
  const auto results = run_processes("shared_buffers_of_the_dead", 3, options);
  for (const size_t rank : {0, 2})
    EXPECT_TRUE(results[rank].exit_code == 0 && !results[rank].hung) << results[rank].output;
}
TEST_F(SharedBuffers, AreMappedBesideAWaitingKernel) { play("mapping_beside_a_waiting_kernel", 2); }
TEST_F(SharedBuffers, AreListedBesideAWaitingKernel) {
  for (const char* origin : {"cudaMalloc", "virtual"})
    play("new_buffer_beside_a_waiting_kernel", 2, origin);
}

}  // namespace
}  // namespace weft::test
