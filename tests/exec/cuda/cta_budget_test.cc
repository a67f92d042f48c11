// Room for thread blocks is reserved before ranks have agreed on how many they need.
#include "src/exec/cuda/cta_budget.h"

#include <gtest/gtest.h>

namespace weft::cuda {
namespace {

TEST(CtaBudget, OfCommunicatorsMadeSideBySideCountEachOther) {
  CtaBudget budget;
  EXPECT_EQ(budget.enter(0, 1, 128), 0);
  EXPECT_EQ(budget.enter(0, 2, 128), 128) << "the first one may need all";
  EXPECT_EQ(budget.enter(0, 1, 128), 0) << "ranks of one communicator hear the same";
  EXPECT_EQ(budget.enter(0, 2, 128), 128);
  EXPECT_EQ(budget.enter(1, 3, 128), 0) << "another GPU";
}

TEST(CtaBudget, AreCountedAsAgreedOnUntilTheLastRankHasLeft) {
  CtaBudget budget;
  for (int rank = 0; rank < 2; ++rank) budget.enter(0, 1, 128);
  budget.settle(0, 1, 2 * 16);
  EXPECT_EQ(budget.enter(0, 2, 128), 32);
  budget.leave(0, 2);
  budget.leave(0, 1);
  EXPECT_EQ(budget.enter(0, 2, 128), 32);
  budget.leave(0, 2);
  budget.leave(0, 1);
  EXPECT_EQ(budget.enter(0, 2, 128), 0);
}

}  // namespace
}  // namespace weft::cuda
