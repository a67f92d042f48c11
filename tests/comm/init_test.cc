// Ways to make a communicator, and its properties.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/comm/checks.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

TEST(Version, IsThatOfTheHeader) {
  int version = 0;
  WEFT_OK(ncclGetVersion(&version));
  EXPECT_EQ(version, NCCL_VERSION_CODE);
}

TEST(ErrorString, ExistsForEveryResult) {
  for (int r = 0; r <= ncclNumResults; ++r) {
    const char* text = ncclGetErrorString(static_cast<ncclResult_t>(r));
    ASSERT_NE(text, nullptr);
    EXPECT_GT(std::strlen(text), 0u);
  }
  EXPECT_STREQ(ncclGetErrorString(ncclSuccess), "no error");
}

TEST(UniqueId, DiffersEveryTime) {
  const ncclUniqueId a = new_unique_id();
  const ncclUniqueId b = new_unique_id();
  EXPECT_NE(std::memcmp(&a, &b, sizeof a), 0);
}

TEST(CommInitRank, GivesEveryRankItsPlace) {
  run_ranks_as_threads(5, [](int rank, ncclComm_t comm) {
    EXPECT_EQ(rank_of(comm), rank);
    EXPECT_EQ(size_of(comm), 5);
    int device = -1;
    WEFT_OK(ncclCommCuDevice(comm, &device));
    EXPECT_GE(device, 0);
    ncclResult_t state = ncclInternalError;
    WEFT_OK(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclSuccess);
    expect_all_reduce_works(comm);
  });
}

TEST(CommInitRank, WorksForOneRankAlone) {
  ncclComm_t comm = nullptr;
  WEFT_OK(ncclCommInitRank(&comm, 1, new_unique_id(), 0));
  expect_all_reduce_works(comm);
  expect_alltoall_works(comm);
  WEFT_OK(ncclCommDestroy(comm));
}

TEST(CommInitRank, InsideAGroupLetsOneThreadMakeAllRanks) {
  constexpr int kRanks = 4;
  const ncclUniqueId id = new_unique_id();
  ncclComm_t comms[kRanks] = {};
  WEFT_OK(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r) WEFT_OK(ncclCommInitRank(&comms[r], kRanks, id, r));
  WEFT_OK(ncclGroupEnd());
  for (int r = 0; r < kRanks; ++r) {
    ASSERT_NE(comms[r], nullptr);
    EXPECT_EQ(rank_of(comms[r]), r);
  }
  run_threads(kRanks, [&](int r) { expect_all_reduce_works(comms[r]); });
  for (ncclComm_t comm : comms) WEFT_OK(ncclCommDestroy(comm));
}

TEST(CommInitAll, NumbersTheRanksInOrder) {
  CommSet set(3);
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(rank_of(set[r]), r);
    EXPECT_EQ(size_of(set[r]), 3);
  }
  run_threads(3, [&](int r) { expect_all_reduce_works(set[r]); });
  run_threads(3, [&](int r) { WEFT_OK(ncclCommDestroy(set.take(r))); });
}

TEST(CommInitRankConfig, AcceptsTheInitializerAndNoConfig) {
  const ncclUniqueId id = new_unique_id();
  run_threads(2, [&](int rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.commName = "from a test";
    config.minCTAs = 1;
    config.maxCTAs = 4;
    ncclComm_t comm = nullptr;
    WEFT_OK(ncclCommInitRankConfig(&comm, 2, id, rank, rank == 0 ? &config : nullptr));
    expect_all_reduce_works(comm);
    WEFT_OK(ncclCommDestroy(comm));
  });
}

// A program compiled against NCCL 2.14 passes a shorter structure with an older version.
TEST(CommInitRankConfig, AcceptsAnOlderShorterConfig) {
  struct OldConfig {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
  };
  OldConfig old;
  std::memset(&old, 0xff, sizeof old);  // the padding must not be read as a newer field
  old.size = sizeof old;
  old.magic = 0xcafebeef;
  old.version = NCCL_VERSION(2, 14, 0);
  old.blocking = 1;
  ncclComm_t comm = nullptr;
  WEFT_OK(
      ncclCommInitRankConfig(&comm, 1, new_unique_id(), 0, reinterpret_cast<ncclConfig_t*>(&old)));
  expect_all_reduce_works(comm);
  WEFT_OK(ncclCommDestroy(comm));
}

TEST(CommInitRankScalable, WorksWithSeveralIds) {
  constexpr int kRanks = 7;
  std::vector<ncclUniqueId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(new_unique_id());
  run_threads(kRanks, [&](int rank) {
    ncclComm_t comm = nullptr;
    std::vector<ncclUniqueId> mine = ids;
    WEFT_OK(ncclCommInitRankScalable(&comm, kRanks, rank, static_cast<int>(mine.size()),
                                     mine.data(), nullptr));
    EXPECT_EQ(rank_of(comm), rank);
    expect_all_reduce_works(comm);
    WEFT_OK(ncclCommDestroy(comm));
  });
}

TEST(Communicators, ManyOfTheSameRanksLiveTogether) {
  constexpr int kRanks = 3;
  constexpr int kComms = 8;
  std::vector<ncclUniqueId> ids;
  for (int i = 0; i < kComms; ++i) ids.push_back(new_unique_id());
  run_threads(kRanks, [&](int rank) {
    std::vector<ncclComm_t> comms(kComms);
    for (size_t i = 0; i < kComms; ++i) WEFT_OK(ncclCommInitRank(&comms[i], kRanks, ids[i], rank));
    for (ncclComm_t comm : comms) expect_all_reduce_works(comm);
    for (ncclComm_t comm : comms) WEFT_OK(ncclCommDestroy(comm));
  });
}

}  // namespace
}  // namespace weft::test
