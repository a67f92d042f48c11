// Which calls may use what was worked out for another one.
#include <gtest/gtest.h>

#include <vector>

#include "src/comm/prepared_calls.h"

namespace weft::test {
namespace {

Call sum_of(size_t count) {
  Call call;
  call.count = count;
  return call;
}

TEST(PreparedCalls, ServeCallsOfTheirShapeOnly) {
  const Call call = sum_of(8);
  PreparedCall known;
  EXPECT_FALSE(known.serves(call, 1)) << "nothing is prepared yet";
  known.shape = CallShape::of(call);
  known.choices = 1;
  EXPECT_TRUE(known.serves(call, 1));
  EXPECT_FALSE(known.serves(call, 2)) << "choices have changed";
  const auto other = [&](auto change) {
    Call changed = call;
    change(changed);
    return known.serves(changed, 1);
  };
  EXPECT_FALSE(other([](Call& c) { c.kind = CollectiveKind::kReduce; }));
  EXPECT_FALSE(other([](Call& c) { c.count = 9; }));
  EXPECT_FALSE(other([](Call& c) { c.stride = 9; }));
  EXPECT_FALSE(other([](Call& c) { c.root = 1; }));
  EXPECT_FALSE(other([](Call& c) { c.sends = true; }));
  EXPECT_FALSE(other([](Call& c) { c.reduction.type = ncclInt32; }));
  EXPECT_FALSE(other([](Call& c) { c.reduction.op = ncclMax; }));
  EXPECT_FALSE(other([](Call& c) { c.reduction.premultiply = true; }));
  EXPECT_FALSE(other([](Call& c) { c.reduction.divide_by = 2; }));
  EXPECT_FALSE(other([](Call& c) { c.reduction.scalar_bits = 2; }));
  EXPECT_FALSE(other([](Call& c) { c.reduction.scale = 2; }));
}

TEST(PreparedCalls, TellCallsInPlaceFromOthersByTheirBuffers) {
  const Collective gather{CollectiveKind::kAllGather, 3, 0};
  std::vector<float> buffer(3 * 8);
  Call call = sum_of(8);
  call.kind = gather.kind;
  call.input = &buffer[16];
  call.output = buffer.data();
  EXPECT_TRUE(plan_call(gather, call, 2, false).in_place);
  EXPECT_FALSE(plan_call(gather, call, 1, false).in_place);
  PreparedCall known;
  known.shape = CallShape::of(call);
  known.choices = 1;
  known.place = in_place_form(gather, call, 2);
  known.in_place = true;
  EXPECT_TRUE(known.serves(call, 1));
  call.input = &buffer[8];
  EXPECT_FALSE(known.serves(call, 1));
}

}  // namespace
}  // namespace weft::test
