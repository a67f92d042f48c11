// Collectives in parts: results, the order of completion, and inputs that become ready part by
// part.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "tests/support/conformance.h"
#include "tests/support/environment.h"
#include "tests/support/sampling.h"
#include "tests/support/threads.h"
#include "weft.h"

namespace weft::test {
namespace {

class Parts : public testing::TestWithParam<int> {};

std::vector<Case> partitioned_cases(int n) {
  std::vector<Case> cases = random_cases(n, test_samples(150), mix(test_seed(), 32));
  std::erase_if(cases, [](const Case& c) { return c.operation == Operation::kSendRecv; });
  for (Case& c : cases) {
    c.parts = 1 + static_cast<int>(mix(c.salt) % 64);
    c.count = std::min<size_t>(c.count, 1 << 18);
  }
  return cases;
}

TEST_P(Parts, GiveTheReferenceResults) {
  const int n = GetParam();
  const std::vector<Case> cases = partitioned_cases(n);
  Watchdog watchdog(n);
  run_ranks_as_threads(
      n, [&](int rank, ncclComm_t comm) { run_cases(cases, rank, n, comm, &watchdog); },
      std::chrono::minutes(10));
}

TEST_P(Parts, GiveTheReferenceResultsInGroups) {
  const CommSet set(GetParam());
  std::vector<ncclComm_t> comms;
  for (int r = 0; r < set.size(); ++r) comms.push_back(set[r]);
  std::vector<Case> cases = partitioned_cases(GetParam());
  cases.resize(std::min<size_t>(cases.size(), 40));
  run_cases_in_groups(cases, comms);
}

INSTANTIATE_TEST_SUITE_P(Collectives, Parts, testing::Values(1, 2, 3, 5, 8),
                         [](const auto& tested) { return std::to_string(tested.param) + "ranks"; });

unsigned look(const unsigned& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }
void set(unsigned& word) { __atomic_store_n(&word, 1, __ATOMIC_RELEASE); }

bool comes(const unsigned& word) {
  const auto deadline = std::chrono::steady_clock::now() + patience(std::chrono::seconds(20));
  while (look(word) == 0) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// A collective whose inputs are written just before they are announced.
struct Staged {
  Operation operation;
  int parts;
  size_t count;
};

// The value of element i of block b of a rank's input, and of its output.
float input_of(int rank, int block, size_t i) {
  return static_cast<float>(rank + 1) * 8 + static_cast<float>(block) + static_cast<float>(i % 5);
}
float output_of(const Staged& s, int n, int rank, int block, size_t i) {
  float sum = 0;
  switch (s.operation) {
    case Operation::kAllReduce:
      for (int r = 0; r < n; r++) sum += input_of(r, 0, i);
      return sum;
    case Operation::kReduceScatter:
      for (int r = 0; r < n; r++) sum += input_of(r, rank, i);
      return sum;
    case Operation::kAllGather:
      return input_of(block, 0, i);
    default:  // all-to-all
      return input_of(block, rank, i);
  }
}

void run_staged(const Staged& s, int n, int rank, ncclComm_t comm) {
  const bool many_in =
                 s.operation == Operation::kReduceScatter || s.operation == Operation::kAlltoAll,
             many_out = s.operation == Operation::kAllGather || s.operation == Operation::kAlltoAll;
  const int in_blocks = many_in ? n : 1, out_blocks = many_out ? n : 1;
  std::vector<float> input(static_cast<size_t>(in_blocks) * s.count, -1),
      output(static_cast<size_t>(out_blocks) * s.count, -1);
  std::vector<unsigned> ready(static_cast<size_t>(s.parts), 0), done(ready);
  weftRequest_t request = nullptr;
  WEFT_OK(weftStart(comm, weft_name(s.operation), input.data(), output.data(), s.count, ncclFloat32,
                    ncclSum, 0, s.parts, ready.data(), done.data(), &request));
  ASSERT_NE(request, nullptr);
  for (int p = 0; p < s.parts; p++) {
    const auto at = static_cast<size_t>(p);
    size_t begin = 0, length = 0;
    WEFT_OK(weftPart(s.count, ncclFloat32, s.parts, p, &begin, &length));
    // Nothing of this part or a later one is done, whatever the others do.
    for (size_t q = at; q < done.size(); q++)
      EXPECT_TRUE(look(done[q]) == 0 || length == 0)
          << "part " << q << " before " << p << " is ready";
    for (int b = 0; b < in_blocks; b++)
      for (size_t i = begin; i < begin + length; i++)
        input[static_cast<size_t>(b) * s.count + i] = input_of(rank, b, i);
    set(ready[at]);
    ASSERT_TRUE(comes(done[at])) << "part " << p;
    for (int b = 0; b < out_blocks; b++)
      for (size_t i = begin; i < begin + length; i++)
        ASSERT_EQ(output[static_cast<size_t>(b) * s.count + i], output_of(s, n, rank, b, i))
            << name_of(s.operation) << " part " << p << " block " << b << " element " << i;
  }
  WEFT_OK(weftWait(request));
}

TEST(PartsInOrder, EachIsDoneAsSoonAsItsInputIsReadyOnAllRanks) {
  for (const int n : {1, 2, 4})
    run_ranks_as_threads(n, [&](int rank, ncclComm_t comm) {
      for (const Operation operation : {Operation::kAllReduce, Operation::kReduceScatter,
                                        Operation::kAllGather, Operation::kAlltoAll})
        for (const auto& [parts, count] :
             {std::pair<int, size_t>{1, 100}, {4, 4096}, {8, 100'003}, {64, 70'001}, {7, 33}})
          run_staged({operation, parts, count}, n, rank, comm);
    });
}

// Words are set one after the other, never a later one first.
TEST(PartsInOrder, CompleteOneAfterTheOther) {
  constexpr int kParts = 32, kRanks = 3, kRounds = 20;
  constexpr size_t kCount = 50'001;
  run_ranks_as_threads(kRanks, [&](int, ncclComm_t comm) {
    std::vector<float> data(kCount, 1);
    for (int round = 0; round < kRounds; round++) {
      std::vector<unsigned> done(kParts, 0);
      std::atomic<bool> over{false};
      size_t early = 0;
      std::thread watch([&] {
        while (!over.load())
          for (size_t p = kParts - 1; p > 0; p--)
            if (look(done[p]) != 0 && look(done[p - 1]) == 0) early++;
      });
      WEFT_OK(weftPartitioned(comm, "all_reduce", data.data(), data.data(), kCount, ncclFloat32,
                              ncclMax, 0, kParts, nullptr, done.data(), nullptr));
      over = true;
      watch.join();
      EXPECT_EQ(early, 0u);
      EXPECT_EQ(std::accumulate(done.begin(), done.end(), 0u), unsigned{kParts});
    }
  });
}

TEST(PartsInOrder, OfAnEmptyCallAreDoneAtOnce) {
  run_ranks_as_threads(2, [&](int, ncclComm_t comm) {
    std::vector<unsigned> ready(5, 0), done(5, 0);
    WEFT_OK(weftPartitioned(comm, "all_gather", nullptr, nullptr, 0, ncclFloat32, ncclSum, 0, 5,
                            ready.data(), done.data(), nullptr));
    EXPECT_EQ(std::accumulate(done.begin(), done.end(), 0u), 5u);
  });
}

TEST(PartRanges, CoverABlockOnceInOrder) {
  uint64_t random = test_seed();
  for (int sample = 0; sample < 2000; sample++) {
    random = mix(random);
    const size_t count = random % (sample % 2 == 0 ? 300 : size_t{1} << 40);
    const int parts = 1 + static_cast<int>(random >> 41) % 64;
    size_t expected = 0;
    for (int p = 0; p < parts; p++) {
      size_t begin = 0, length = 0;
      WEFT_OK(weftPart(count, ncclBfloat16, parts, p, &begin, &length));
      ASSERT_EQ(begin, expected) << count << " in " << parts;
      expected += length;
    }
    ASSERT_EQ(expected, count) << parts << " parts";
  }
  size_t begin = 0, length = 0;
  WEFT_OK(weftPart(SIZE_MAX, ncclInt8, 64, 63, &begin, &length));
  EXPECT_EQ(begin + length, SIZE_MAX);
  EXPECT_EQ(weftPart(10, ncclInt8, 4, 4, &begin, &length), ncclInvalidArgument);
  EXPECT_EQ(weftPart(10, ncclInt8, 0, 0, &begin, &length), ncclInvalidArgument);
}

TEST(StartedCalls, KeepOtherCallsOutUntilTheyAreWaitedFor) {
  run_ranks_as_threads(2, [&](int, ncclComm_t comm) {
    float in = 1, out = 0;
    unsigned ready = 0, done = 0;
    weftRequest_t request = nullptr, second = nullptr;
    WEFT_OK(weftStart(comm, "all_reduce", &in, &out, 1, ncclFloat32, ncclSum, 0, 1, &ready, &done,
                      &request));
    EXPECT_EQ(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, nullptr), ncclInvalidUsage);
    EXPECT_EQ(weftStart(comm, "all_reduce", &in, &out, 1, ncclFloat32, ncclSum, 0, 1, nullptr,
                        nullptr, &second),
              ncclInvalidUsage);
    EXPECT_EQ(second, nullptr);
    EXPECT_EQ(look(done), 0u);
    set(ready);
    WEFT_OK(weftWait(request));
    EXPECT_EQ(out, 2);
    WEFT_OK(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, nullptr));
  });
}

TEST(StartedCalls, EndWhenTheCommunicatorIsAborted) {
  CommSet set(2);
  float in = 1, out = 0;
  unsigned ready = 0;
  weftRequest_t request = nullptr;
  WEFT_OK(weftStart(set[0], "all_reduce", &in, &out, 1, ncclFloat32, ncclSum, 0, 1, &ready, nullptr,
                    &request));
  WEFT_OK(ncclCommAbort(set.take(0)));
  EXPECT_NE(weftWait(request), ncclSuccess);
}

TEST(StartedCalls, GiveUpIfAPartNeverBecomesReady) {
  const ScopedEnvironment limit({{"WEFT_TIMEOUT", "1"}});
  run_ranks_as_threads(2, [&](int rank, ncclComm_t comm) {
    float in = 1, out = 0;
    unsigned ready = 0;
    const ncclResult_t result =
        weftPartitioned(comm, "all_reduce", &in, &out, 1, ncclFloat32, ncclSum, 0, 1,
                        rank == 0 ? &ready : nullptr, nullptr, nullptr);
    EXPECT_NE(result, ncclSuccess);
    if (rank == 0 && result == ncclInvalidUsage)
      EXPECT_NE(std::string(ncclGetLastError(comm)).find("ready word"), std::string::npos);
  });
}

TEST(PartArguments, AreChecked) {
  const CommSet set(1);
  float in = 1, out = 0;
  const auto call = [&](const char* collective, int parts) {
    return weftPartitioned(set[0], collective, &in, &out, 1, ncclFloat32, ncclSum, 0, parts,
                           nullptr, nullptr, nullptr);
  };
  EXPECT_EQ(call("all_reduce", 1), ncclSuccess);
  EXPECT_EQ(call("all_reduce", 0), ncclInvalidArgument);
  EXPECT_EQ(call("all_reduce", 1025), ncclInvalidArgument);
  EXPECT_EQ(call("sendrecv", 1), ncclInvalidArgument);
  EXPECT_EQ(call("nothing", 1), ncclInvalidArgument);
  EXPECT_EQ(call(nullptr, 1), ncclInvalidArgument);
  EXPECT_EQ(weftWait(nullptr), ncclInvalidArgument);
}

}  // namespace
}  // namespace weft::test
