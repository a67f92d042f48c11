// How much GPU memory a rank takes.
#include "src/exec/cuda/memory_sizes.h"

#include <gtest/gtest.h>

namespace weft::test {
namespace {

using cuda::GpuOptions;
using cuda::memory_sizes;
using cuda::MemorySizes;

GpuOptions options_of(int nranks, bool one_process) {
  GpuOptions options;
  options.nranks = nranks;
  options.one_process = one_process;
  return options;
}

TEST(MemorySizes, AreAtMost64MiBPerRank) {
  for (int nranks = 1; nranks <= 256; nranks++)
    for (const bool one_process : {false, true}) {
      const MemorySizes sizes = memory_sizes(options_of(nranks, one_process));
      EXPECT_LE(sizes.total() >> 20, 64u) << nranks << " ranks";
      EXPECT_GE(sizes.stage >> 20, 20u) << nranks << " ranks";
      if (!one_process) {
        EXPECT_GE(sizes.send_stage >> 20, 8u) << nranks << " ranks";
      }
      EXPECT_EQ(sizes.stage % (1 << 20), 0u);
      EXPECT_EQ(sizes.send_stage % (1 << 20), 0u);
    }
}

TEST(MemorySizes, GiveEveryBlockOfARankItsPackets) {
  for (const int nranks : {1, 2, 4, 8})
    EXPECT_GE(memory_sizes(options_of(nranks, true)).packet_ctas, std::min(64u, 128u / nranks));
}

TEST(MemorySizes, AreWhatTheUserSays) {
  GpuOptions options = options_of(8, false);
  options.scratch_bytes = size_t{100} << 20;
  EXPECT_EQ(memory_sizes(options).stage, size_t{100} << 20);
  EXPECT_EQ(memory_sizes(options).send_stage, size_t{50} << 20);
  options.scratch_bytes = 1;
  EXPECT_EQ(memory_sizes(options).stage, size_t{1} << 20);
  EXPECT_EQ(memory_sizes(options).send_stage, size_t{1} << 20);
}

}  // namespace
}  // namespace weft::test
