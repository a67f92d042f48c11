// Collectives in parts on GPUs: results, and words that the stream waits for and sets.
#include <gtest/gtest.h>

#include <thread>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/team.h"
#include "tests/support/sampling.h"
#include "weft.h"

namespace weft::test {
namespace {

class GpuParts : public GpuTest, public testing::WithParamInterface<Operation> {};

// Sizes for packets, for peer memory and for its fallbacks.
TEST_P(GpuParts, GiveRightResults) {
  run_team(3, [](Rank& me) {
    for (const size_t count : {size_t{1}, size_t{5000}, size_t{70001}, size_t{1} << 19})
      for (const int parts : {1, 3, 64})
        for (const bool in_place : {false, true}) {
          Case c = make_case(GetParam(), count);
          c.in_place = in_place;
          c.parts = parts;
          c.salt = mix(count, static_cast<uint64_t>(parts));
          me.run(c);
        }
  });
}

INSTANTIATE_TEST_SUITE_P(Every, GpuParts,
                         testing::Values(Operation::kAllReduce, Operation::kReduce,
                                         Operation::kBroadcast, Operation::kAllGather,
                                         Operation::kReduceScatter, Operation::kAlltoAll,
                                         Operation::kGather, Operation::kScatter),
                         [](const auto& tested) { return name_of(tested.param); });

class GpuPartWords : public GpuTest {};

// Each part is done when all ranks are ready for it, and not before.
TEST_F(GpuPartWords, LetPartsRunOneByOne) {
  constexpr int kRanks = 2, kParts = 4;
  constexpr size_t kCount = 1 << 16;
  unsigned* words = nullptr;
  float* data = nullptr;
  WEFT_CUDA(cudaHostAlloc(&words, kRanks * 2 * kParts * sizeof *words, cudaHostAllocPortable));
  std::fill(words, words + kRanks * 2 * kParts, 0u);
  WEFT_CUDA(cudaMalloc(&data, kRanks * kCount * sizeof *data));
  WEFT_CUDA(cudaMemset(data, 0, kRanks * kCount * sizeof *data));
  WEFT_CUDA(cudaDeviceSynchronize());
  run_team(kRanks, [&](Rank& me) {
    unsigned* ready = words + me.rank * 2 * kParts;
    unsigned* done = ready + kParts;
    float* mine = data + static_cast<size_t>(me.rank) * kCount;
    WEFT_OK(weftPartitioned(me.comm(), "all_reduce", mine, mine, kCount, ncclFloat32, ncclSum, 0,
                            kParts, ready, done, me.stream()));
    for (int p = 0; p < kParts; p++) {
      for (int q = p; q < kParts; q++) EXPECT_EQ(__atomic_load_n(&done[q], __ATOMIC_ACQUIRE), 0u);
      __atomic_store_n(&ready[p], 1, __ATOMIC_RELEASE);
      const auto deadline = std::chrono::steady_clock::now() + patience(std::chrono::seconds(10));
      while (__atomic_load_n(&done[p], __ATOMIC_ACQUIRE) == 0 &&
             std::chrono::steady_clock::now() < deadline)
        std::this_thread::yield();
      EXPECT_EQ(__atomic_load_n(&done[p], __ATOMIC_ACQUIRE), 1u) << "part " << p;
    }
    EXPECT_EQ(finish_within(me.stream(), std::chrono::seconds(10)), "");
  });
  WEFT_CUDA(cudaFree(data));
  WEFT_CUDA(cudaFreeHost(words));
}

}  // namespace
}  // namespace weft::test
