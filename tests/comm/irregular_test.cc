// Which groups of sends and receives are an exchange, and the plan of exchanges.
#include "src/comm/irregular.h"

#include <gtest/gtest.h>

#include "algorithms/generators/generators.h"
#include "src/schedule/verify.h"

namespace weft::test {
namespace {

Call one_message(bool sends, int peer, size_t count, ncclDataType_t type = ncclFloat32) {
  Call call;
  call.kind = CollectiveKind::kSendRecv;
  call.sends = sends;
  call.root = peer;
  call.count = count;
  call.reduction.type = type;
  return call;
}

bool is_exchange(const std::vector<Call>& calls, int rank, int nranks) {
  std::vector<const Call*> pointers;
  for (const Call& call : calls) pointers.push_back(&call);
  return as_exchange(pointers, rank, nranks) != nullptr;
}

TEST(Exchanges, AreASendAndAReceiveWithEveryPeer) {
  const std::vector<Call> all = {one_message(true, 0, 5), one_message(false, 0, 7),
                                 one_message(true, 2, 0), one_message(false, 2, 9)};
  EXPECT_TRUE(is_exchange(all, 1, 3));
  auto with_itself = all;
  with_itself.push_back(one_message(true, 1, 4));
  EXPECT_FALSE(is_exchange(with_itself, 1, 3));  // received later
  with_itself.push_back(one_message(false, 1, 4));
  EXPECT_TRUE(is_exchange(with_itself, 1, 3));
  with_itself.back().count = 3;
  EXPECT_FALSE(is_exchange(with_itself, 1, 3));
  auto one_less = all;
  one_less.pop_back();
  EXPECT_FALSE(is_exchange(one_less, 1, 3));
  auto twice = all;
  twice.back().root = 0;
  EXPECT_FALSE(is_exchange(twice, 1, 3));
  auto types = all;
  types.back().reduction.type = ncclInt8;
  EXPECT_FALSE(is_exchange(types, 1, 3));
  auto mixed = all;
  mixed.back().kind = CollectiveKind::kAllReduce;
  EXPECT_FALSE(is_exchange(mixed, 1, 3));
}

TEST(Exchanges, HaveAProvedPlanWithALaneForEveryMessage) {
  for (int n = 1; n <= 17; n++) {
    const VerifiedSchedule proved =
        verify(kIrregular.make({CollectiveKind::kAllToAllV, n, 0}, false), false);
    for (const RankSchedule& rank : proved.schedule().ranks)
      for (const Lane& lane : rank.lanes) EXPECT_EQ(lane.steps.size(), 1u);
  }
}

TEST(Exchanges, BecomeTheirMessages) {
  Call call;
  auto blocks = std::make_shared<Irregular>();
  int data = 0;
  blocks->sends = {{&data, 3}, {nullptr, 0}};
  blocks->receives = {{&data, 3}, {&data, 2}};
  call.irregular = blocks;
  const std::vector<Call> calls = messages_of(call);
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_TRUE(calls[0].sends);
  EXPECT_EQ(calls[0].input, &data);
  EXPECT_EQ(calls[2].root, 1);
  EXPECT_EQ(calls[2].output, &data);
}

}  // namespace
}  // namespace weft::test
