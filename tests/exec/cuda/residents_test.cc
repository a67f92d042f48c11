// Room for thread blocks is reserved before ranks have agreed on how much they need.
#include "src/exec/cuda/residents.h"

#include <gtest/gtest.h>

namespace weft::cuda {
namespace {

TEST(Residents, OfCommunicatorsMadeSideBySideCountEachOther) {
  Residents residents;
  EXPECT_EQ(residents.enter(0, 1, 128), 0);
  EXPECT_EQ(residents.enter(0, 2, 128), 128) << "the first one may need all";
  EXPECT_EQ(residents.enter(0, 1, 128), 0) << "ranks of one communicator hear the same";
  EXPECT_EQ(residents.enter(0, 2, 128), 128);
  EXPECT_EQ(residents.enter(1, 3, 128), 0) << "another GPU";
}

TEST(Residents, AreCountedAsAgreedOnUntilTheLastRankHasLeft) {
  Residents residents;
  for (int rank = 0; rank < 2; ++rank) residents.enter(0, 1, 128);
  residents.settle(0, 1, 2 * 16);
  EXPECT_EQ(residents.enter(0, 2, 128), 32);
  residents.leave(0, 2);
  residents.leave(0, 1);
  EXPECT_EQ(residents.enter(0, 2, 128), 32);
  residents.leave(0, 2);
  residents.leave(0, 1);
  EXPECT_EQ(residents.enter(0, 2, 128), 0);
}

}  // namespace
}  // namespace weft::cuda
