// Exchanges of blocks of different lengths between threads, and what happens if counts differ.
#include <gtest/gtest.h>

#include <thread>

#include "tests/collective/exchanges.h"
#include "tests/support/sampling.h"
#include "tests/support/threads.h"
#include "weft.h"

namespace weft::test {
namespace {

class AllToAllV : public testing::TestWithParam<int> {};

TEST_P(AllToAllV, BringsEveryBlockToItsPlace) {
  const int n = GetParam(), samples = test_samples(60);
  run_ranks_as_threads(n, [&](int rank, ncclComm_t comm) {
    for (int k = 0; k < samples; k++) {
      const Exchange e = random_exchange(n, mix(test_seed(), static_cast<uint64_t>(k)));
      EXPECT_EQ(run_exchange(e, rank, comm), "")
          << "exchange " << k << (e.messages ? " of messages" : "") << " in " << e.parts
          << " parts";
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Exchanges, AllToAllV, testing::Values(1, 2, 3, 5, 8),
                         [](const auto& tested) { return std::to_string(tested.param) + "ranks"; });

// Rank 0 sees an exchange. Rank 1 makes its calls one by one.
TEST(GroupedMessages, MeetSingleOnes) {
  constexpr size_t kCount = 300'000;
  run_ranks_as_threads(2, [&](int rank, ncclComm_t comm) {
    std::vector<int> in(kCount, rank + 1), out(kCount, 0);
    for (int k = 0; k < 5; k++) {
      if (rank == 0) {
        ncclGroupStart();
        WEFT_OK(ncclSend(in.data(), kCount, ncclInt32, 1, comm, nullptr));
        WEFT_OK(ncclRecv(out.data(), kCount, ncclInt32, 1, comm, nullptr));
        WEFT_OK(ncclGroupEnd());
      } else {
        WEFT_OK(ncclSend(in.data(), kCount, ncclInt32, 0, comm, nullptr));
        WEFT_OK(ncclRecv(out.data(), kCount, ncclInt32, 0, comm, nullptr));
      }
      EXPECT_EQ(out, std::vector<int>(kCount, 2 - rank));
    }
  });
}

// Ranks that wait for long compare their calls. What they send in all differs, and that is right.
TEST(BlocksOfDifferentLengths, AreNoDisagreementWhileARankIsLate) {
  constexpr int kRanks = 3;
  run_ranks_as_threads(kRanks, [](int rank, ncclComm_t comm) {
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1800));
    std::vector<size_t> send(kRanks), receive(kRanks);
    for (int peer = 0; peer < kRanks; peer++) {
      send[static_cast<size_t>(peer)] = static_cast<size_t>(1000 * rank + 10 * peer + 1);
      receive[static_cast<size_t>(peer)] = static_cast<size_t>(1000 * peer + 10 * rank + 1);
    }
    std::vector<char> in(10000, static_cast<char>(rank)), out(10000, 9);
    WEFT_OK(weftAllToAllv(in.data(), send.data(), nullptr, out.data(), receive.data(), nullptr,
                          ncclInt8, comm, 1, nullptr, nullptr, nullptr));
    EXPECT_EQ(out[receive[0] + receive[1]], 2);
  });
}

// Every rank's error names the two ranks and both lengths.
void expect_named(size_t sent, size_t expected) {
  constexpr int kRanks = 3;
  CommSet set(kRanks);
  std::vector<PendingCall> calls;
  std::string texts[kRanks];
  for (int r = 0; r < kRanks; r++)
    calls.emplace_back([&, r, comm = set[r]] {
      std::vector<size_t> send(kRanks, 100), receive(kRanks, 100);
      if (r == 1) send[2] = sent;
      if (r == 2) receive[1] = expected;
      std::vector<char> in(1000, 1), out(1000, 0);
      const ncclResult_t result =
          weftAllToAllv(in.data(), send.data(), nullptr, out.data(), receive.data(), nullptr,
                        ncclInt8, comm, 1, nullptr, nullptr, nullptr);
      texts[r] = ncclGetLastError(comm);
      return result;
    });
  std::string told;
  for (int r = 0; r < kRanks; r++) {
    const ncclResult_t result =
        calls[static_cast<size_t>(r)].wait_for(patience(std::chrono::seconds(20)));
    ASSERT_NE(result, ncclNumResults) << "rank " << r << " waits";
    if (r == 2) EXPECT_EQ(result, ncclInvalidUsage);
    if (result != ncclSuccess) told = texts[r];
  }
  EXPECT_NE(told.find("rank 2"), std::string::npos) << told;
  EXPECT_NE(told.find("receives " + std::to_string(expected) + " bytes from rank 1"),
            std::string::npos)
      << told;
  EXPECT_NE(told.find("sends " + std::to_string(sent)), std::string::npos) << told;
}

TEST(AllToAllVCounts, ThatDifferAreNamed) {
  expect_named(5, 7);
  expect_named(0, 7);
  expect_named(5, 0);
}

TEST(AllToAllVArguments, AreChecked) {
  const CommSet set(2);
  size_t counts[] = {1, 1}, others[] = {2, 1}, huge[] = {SIZE_MAX, 1};
  char in[4] = {}, out[4] = {};
  const auto call = [&](const void* send, const size_t* sends, void* receive,
                        const size_t* receives, int parts) {
    return weftAllToAllv(send, sends, nullptr, receive, receives, nullptr, ncclInt8, set[0], parts,
                         nullptr, nullptr, nullptr);
  };
  EXPECT_EQ(call(in, nullptr, out, counts, 1), ncclInvalidArgument);
  EXPECT_EQ(call(in, counts, out, nullptr, 1), ncclInvalidArgument);
  EXPECT_EQ(call(nullptr, counts, out, counts, 1), ncclInvalidArgument);
  EXPECT_EQ(call(in, counts, nullptr, counts, 1), ncclInvalidArgument);
  EXPECT_EQ(call(in, counts, in, counts, 1), ncclInvalidArgument);
  EXPECT_EQ(call(in, counts, out, others, 1), ncclInvalidArgument);
  EXPECT_EQ(call(in, huge, out, huge, 1), ncclInvalidArgument);
  EXPECT_EQ(call(in, counts, out, counts, 0), ncclInvalidArgument);
}

}  // namespace
}  // namespace weft::test
