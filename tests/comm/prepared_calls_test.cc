// Calls that differ in one thing only, in turn. What was worked out for one must not serve another.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/comm/checks.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

constexpr int kMembers = 3;
constexpr size_t kElements = 60;
constexpr int kTimes = 3;

void check_gather(int rank, ncclComm_t comm, size_t count, bool in_place) {
  std::vector<int> all(kMembers * count, -1), mine(count, rank + 1), expected;
  for (int r = 0; r < kMembers; r++) expected.insert(expected.end(), count, r + 1);
  int* own = &all[static_cast<size_t>(rank) * count];
  if (in_place) std::fill_n(own, count, rank + 1);
  WEFT_OK(ncclAllGather(in_place ? own : mine.data(), all.data(), count, ncclInt32, comm, nullptr));
  EXPECT_EQ(all, expected);
}

template <typename T>
void check_reduction(int rank, ncclComm_t comm, ncclDataType_t type, ncclRedOp_t op, T result) {
  std::vector<T> data(kElements, static_cast<T>(2 * rank + 1));  // 1, 3, 5
  WEFT_OK(ncclAllReduce(data.data(), data.data(), kElements, type, op, comm, nullptr));
  EXPECT_EQ(data, std::vector<T>(kElements, result));
}

void check_scaled(int rank, ncclComm_t comm, float by) {
  ncclRedOp_t op{};
  WEFT_OK(ncclRedOpCreatePreMulSum(&op, &by, ncclFloat32, ncclScalarHostImmediate, comm));
  check_reduction<float>(rank, comm, ncclFloat32, op, 9 * by);
  WEFT_OK(ncclRedOpDestroy(op, comm));
}

TEST(PreparedCalls, DoNotMixUpTypesOperatorsScalarsAndPlaces) {
  run_ranks_as_threads(kMembers, [](int rank, ncclComm_t comm) {
    for (int round = 0; round < kTimes; round++) {
      check_reduction<float>(rank, comm, ncclFloat32, ncclSum, 9);
      check_reduction<float>(rank, comm, ncclFloat32, ncclMax, 5);
      check_reduction<float>(rank, comm, ncclFloat32, ncclAvg, 3);
      check_reduction<int>(rank, comm, ncclInt32, ncclSum, 9);
      check_reduction<int>(rank, comm, ncclInt32, ncclMin, 1);
      check_scaled(rank, comm, 2);
      check_scaled(rank, comm, static_cast<float>(round + 3));
      check_gather(rank, comm, kElements, true);
      check_gather(rank, comm, kElements, false);
    }
  });
}

TEST(PreparedCalls, DoNotMixUpRootsAndPeers) {
  run_ranks_as_threads(kMembers, [](int rank, ncclComm_t comm) {
    for (int i = 0; i < kTimes * kMembers; i++) {
      const int root = i % kMembers;
      std::vector<int> data(kElements, rank == root ? i : -1);
      WEFT_OK(ncclBroadcast(data.data(), data.data(), kElements, ncclInt32, root, comm, nullptr));
      EXPECT_EQ(data, std::vector<int>(kElements, i));
      const int to = (rank + 1 + root) % kMembers,
                from = (rank + 2 * kMembers - 1 - root) % kMembers;
      std::vector<int> sent(kElements, 100 * rank + i), got(kElements, -1);
      WEFT_OK(ncclGroupStart());
      WEFT_OK(ncclSend(sent.data(), kElements, ncclInt32, to, comm, nullptr));
      WEFT_OK(ncclRecv(got.data(), kElements, ncclInt32, from, comm, nullptr));
      WEFT_OK(ncclGroupEnd());
      EXPECT_EQ(got, std::vector<int>(kElements, 100 * from + i));
    }
  });
}

// More shapes than there are places, in groups too, in which all calls wait for the end.
TEST(PreparedCalls, MayBeDrivenOutByOthersOfTheSameGroup) {
  run_ranks_as_threads(kMembers, [](int rank, ncclComm_t comm) {
    constexpr size_t kShapes = 100;
    std::vector<std::vector<int>> data;
    for (int round = 0; round < kTimes; round++) {
      data.clear();
      for (size_t n = 1; n <= kShapes; n++) data.emplace_back(n, rank + 1);
      WEFT_OK(ncclGroupStart());
      for (auto& one : data)
        WEFT_OK(
            ncclAllReduce(one.data(), one.data(), one.size(), ncclInt32, ncclSum, comm, nullptr));
      WEFT_OK(ncclGroupEnd());
      for (const auto& one : data) EXPECT_EQ(one, std::vector<int>(one.size(), 6));
      check_gather(rank, comm, static_cast<size_t>(round + 1), round % 2 == 0);
    }
  });
}

}  // namespace
}  // namespace weft::test
