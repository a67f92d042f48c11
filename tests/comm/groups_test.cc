// Groups: nested, over several communicators, of mixed operations, with errors inside.
#include <gtest/gtest.h>

#include <vector>

#include "tests/comm/checks.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

TEST(Group, EmptyAndNestedEmptyGroupsSucceed) {
  WEFT_OK(ncclGroupStart());
  WEFT_OK(ncclGroupStart());
  WEFT_OK(ncclGroupEnd());
  WEFT_OK(ncclGroupEnd());
}

TEST(Group, LaunchesAtTheOutermostEnd) {
  CommSet set(2);
  int data[2] = {1, 2};
  WEFT_OK(ncclGroupStart());
  for (int r = 0; r < 2; ++r) {
    WEFT_OK(ncclGroupStart());
    WEFT_OK(ncclAllReduce(&data[r], &data[r], 1, ncclInt32, ncclSum, set[r], nullptr));
    WEFT_OK(ncclGroupEnd());  // launching here would wait for ever: the peer has not called yet
    EXPECT_EQ(data[0], 1);
  }
  WEFT_OK(ncclGroupEnd());
  EXPECT_EQ(data[0], 3);
  EXPECT_EQ(data[1], 3);
}

// Operations of one group may run at the same time, so they share no buffers here.
TEST(Group, OfSeveralCollectivesOnOneCommunicatorRunsThemAll) {
  run_ranks_as_threads(3, [](int rank, ncclComm_t comm) {
    std::vector<int> sum(500, rank);
    std::vector<int> sent(500, rank == 2 ? 9 : -1);
    std::vector<int> gathered(3 * 500, -1);
    const std::vector<int> mine(500, 10 * rank);
    WEFT_OK(ncclGroupStart());
    WEFT_OK(ncclAllReduce(sum.data(), sum.data(), 500, ncclInt32, ncclSum, comm, nullptr));
    WEFT_OK(ncclBroadcast(sent.data(), sent.data(), 500, ncclInt32, 2, comm, nullptr));
    WEFT_OK(ncclAllGather(mine.data(), gathered.data(), 500, ncclInt32, comm, nullptr));
    WEFT_OK(ncclGroupEnd());
    EXPECT_EQ(sum, std::vector<int>(500, 3));
    EXPECT_EQ(sent, std::vector<int>(500, 9));
    for (size_t i = 0; i < gathered.size(); ++i)
      ASSERT_EQ(gathered[i], 10 * static_cast<int>(i / 500));
  });
}

TEST(Group, MixesCollectivesAndPointToPoint) {
  run_ranks_as_threads(4, [](int rank, ncclComm_t comm) {
    const int next = (rank + 1) % 4;
    const int previous = (rank + 3) % 4;
    std::vector<float> sum(2000, 1.0f);
    std::vector<int> out(333, rank);
    std::vector<int> in(333, -1);
    std::vector<int> gathered(4, -1);
    WEFT_OK(ncclGroupStart());
    WEFT_OK(ncclSend(out.data(), 333, ncclInt32, next, comm, nullptr));
    WEFT_OK(ncclAllReduce(sum.data(), sum.data(), 2000, ncclFloat32, ncclSum, comm, nullptr));
    WEFT_OK(ncclRecv(in.data(), 333, ncclInt32, previous, comm, nullptr));
    WEFT_OK(ncclGather(&rank, gathered.data(), 1, ncclInt32, 3, comm, nullptr));
    WEFT_OK(ncclGroupEnd());
    EXPECT_EQ(sum, std::vector<float>(2000, 4.0f));
    EXPECT_EQ(in, std::vector<int>(333, previous));
    EXPECT_EQ(gathered, rank == 3 ? std::vector<int>({0, 1, 2, 3}) : std::vector<int>(4, -1));
  });
}

TEST(Group, OverSeveralCommunicatorsFromOneThread) {
  CommSet first(3);
  CommSet second(3);
  std::vector<int> a = {1, 2, 3};
  std::vector<int> b = {10, 20, 30};
  WEFT_OK(ncclGroupStart());
  for (size_t r = 0; r < 3; ++r) {
    WEFT_OK(
        ncclAllReduce(&a[r], &a[r], 1, ncclInt32, ncclSum, first[static_cast<int>(r)], nullptr));
    // The ranks of the other communicator are in the opposite order.
    const size_t q = 2 - r;
    WEFT_OK(
        ncclAllReduce(&b[q], &b[q], 1, ncclInt32, ncclMax, second[static_cast<int>(q)], nullptr));
  }
  WEFT_OK(ncclGroupEnd());
  EXPECT_EQ(a, std::vector<int>(3, 6));
  EXPECT_EQ(b, std::vector<int>(3, 30));
}

TEST(Group, OverTwoCommunicatorsInDifferentOrderOnEachRankDoesNotDeadlock) {
  const ncclUniqueId one = new_unique_id();
  const ncclUniqueId two = new_unique_id();
  run_threads(2, [&](int rank) {
    ncclComm_t a = nullptr;
    ncclComm_t b = nullptr;
    WEFT_OK(ncclCommInitRank(&a, 2, one, rank));
    WEFT_OK(ncclCommInitRank(&b, 2, two, rank));
    for (int round = 0; round < 50; ++round) {
      std::vector<int> x(3000, 1);
      std::vector<int> y(3000, 2);
      WEFT_OK(ncclGroupStart());
      const auto reduce = [](std::vector<int>& v, ncclComm_t comm) {
        WEFT_OK(ncclAllReduce(v.data(), v.data(), v.size(), ncclInt32, ncclSum, comm, nullptr));
      };
      if (rank == 0) {
        reduce(x, a);
        reduce(y, b);
      } else {
        reduce(y, b);
        reduce(x, a);
      }
      WEFT_OK(ncclGroupEnd());
      EXPECT_EQ(x[2999], 2);
      EXPECT_EQ(y[2999], 4);
    }
    WEFT_OK(ncclCommDestroy(a));
    WEFT_OK(ncclCommDestroy(b));
  });
}

TEST(Group, WithABadCallInsideReportsItTwiceAndLeavesTheCommunicatorUsable) {
  CommSet set(2);
  int data[2] = {1, 2};
  WEFT_OK(ncclGroupStart());
  EXPECT_EQ(ncclAllReduce(&data[0], &data[0], 1, ncclInt32, static_cast<ncclRedOp_t>(77), set[0],
                          nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(data[0], 1);
  run_threads(2, [&](int r) { expect_all_reduce_works(set[r]); });
}

TEST(Group, EndWithoutStartIsInvalidUsage) {
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  WEFT_OK(ncclGroupStart());
  WEFT_OK(ncclGroupEnd());
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
}

TEST(Group, IsPerThread) {
  WEFT_OK(ncclGroupStart());
  // A group open in this thread must not capture another thread's calls.
  run_ranks_as_threads(2, [](int, ncclComm_t comm) { expect_all_reduce_works(comm); });
  WEFT_OK(ncclGroupEnd());
}

TEST(GroupSimulateEnd, ClosesTheGroupAndRunsNothing) {
  CommSet set(1);
  int in = 5;
  int out = -1;
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  WEFT_OK(ncclGroupStart());
  WEFT_OK(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, set[0], nullptr));
  WEFT_OK(ncclGroupSimulateEnd(&info));
  EXPECT_EQ(out, -1);
  EXPECT_EQ(info.estimatedTime, NCCL_UNDEF_FLOAT);  // there is no cost model yet
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
}

}  // namespace
}  // namespace weft::test
