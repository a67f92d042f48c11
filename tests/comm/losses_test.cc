// What lossy encodings lose is kept per buffer and operator, within a limit.
#include "src/comm/losses.h"

#include <gtest/gtest.h>

#include "src/base/error.h"

namespace weft::test {
namespace {

Call call_of(const void* input, ncclRedOp_t op = ncclSum, uint32_t divide_by = 0) {
  Call call;
  call.kind = CollectiveKind::kAllReduce;
  call.input = input;
  call.count = 4;
  call.reduction.op = op;
  call.reduction.divide_by = divide_by;
  return call;
}

TEST(Losses, BelongToABufferAndAnOperator) {
  Losses losses(1 << 20, Losses::host_zeros);
  const float a = 0, b = 0;
  float* sums = losses.of(call_of(&a), 4, 4);
  sums[0] = 5;
  EXPECT_EQ(losses.of(call_of(&a), 4, 4)[0], 5);
  EXPECT_EQ(losses.of(call_of(&a, ncclSum, 2), 4, 4)[0], 0) << "an average has other units";
  EXPECT_EQ(losses.of(call_of(&b), 4, 4)[0], 0);
  losses.forget();
  EXPECT_EQ(losses.bytes(), 0u);
  EXPECT_EQ(losses.of(call_of(&a), 4, 4)[0], 0) << "the setting has changed";
}

TEST(Losses, StayWithinTheLimit) {
  Losses losses(2 * 8 * sizeof(float), Losses::host_zeros);
  const float buffers[3] = {};
  losses.of(call_of(&buffers[0]), 4, 4)[0] = 1;
  losses.of(call_of(&buffers[1]), 4, 4)[0] = 2;
  losses.of(call_of(&buffers[2]), 4, 4)[0] = 3;
  EXPECT_EQ(losses.bytes(), 2 * 8 * sizeof(float));
  EXPECT_EQ(losses.of(call_of(&buffers[1]), 4, 4)[0], 2);
  EXPECT_EQ(losses.of(call_of(&buffers[0]), 4, 4)[0], 0) << "unused for longest";
  Call large = call_of(&buffers[0]);
  large.count = 100;
  EXPECT_THROW(losses.of(large, 100, 100), Error);
}

TEST(Losses, OfGraphsNeverGo) {
  Losses losses(2 * 8 * sizeof(float), Losses::host_zeros);
  const float buffers[4] = {};
  float* held = losses.of(call_of(&buffers[0]), 4, 4, true);
  held[0] = 1;
  losses.of(call_of(&buffers[1]), 4, 4)[0] = 2;
  losses.of(call_of(&buffers[2]), 4, 4, true)[0] = 3;
  EXPECT_EQ(losses.of(call_of(&buffers[0]), 4, 4)[0], 1) << "used for longest ago, but captured";
  EXPECT_THROW(losses.of(call_of(&buffers[3]), 4, 4), Error) << "graphs hold all of the limit";
  losses.forget();
  losses.release();
  EXPECT_TRUE(losses.has_gone()) << "a graph may still use them";
  held[1] = 5;
}

}  // namespace
}  // namespace weft::test
