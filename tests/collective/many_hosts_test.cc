// 64 ranks as processes of 8 hosts: they connect and exchange data in time, with few descriptors.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/processes.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

constexpr int kHosts = 8, kRanks = 64;

size_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// What rank `from` has for rank `to` at `i`.
int value(int from, int to, size_t i) { return from * 1000 + to * 7 + static_cast<int>(i % 977); }

void expect_reduced(int rank, ncclComm_t comm, size_t count) {
  std::vector<int> data(count), expected(count);
  for (size_t i = 0; i < count; i++) {
    data[i] = value(rank, 0, i);
    for (int r = 0; r < kRanks; r++) expected[i] += value(r, 0, i);
  }
  WEFT_OK(ncclAllReduce(data.data(), data.data(), count, ncclInt32, ncclSum, comm, nullptr));
  EXPECT_TRUE(data == expected) << count << " reduced numbers";
}

void expect_exchanged(int rank, ncclComm_t comm, size_t count, bool gather) {
  std::vector<int> in, out(kRanks * count), expected;
  for (int to = 0; to < (gather ? 1 : kRanks); to++)
    for (size_t i = 0; i < count; i++) in.push_back(value(rank, to, i));
  for (int from = 0; from < kRanks; from++)
    for (size_t i = 0; i < count; i++) expected.push_back(value(from, gather ? 0 : rank, i));
  if (gather)
    WEFT_OK(ncclAllGather(in.data(), out.data(), count, ncclInt32, comm, nullptr));
  else
    WEFT_OK(ncclAlltoAll(in.data(), out.data(), count, ncclInt32, comm, nullptr));
  EXPECT_TRUE(out == expected) << count << (gather ? " gathered" : " exchanged") << " numbers";
}

WEFT_SCENARIO(many_hosts) {
  with_communicator(context, [&](ncclComm_t comm) {
    for (const size_t count : {1u, 1000u, 100000u}) expect_reduced(context.rank, comm, count);
    for (const size_t count : {1u, 300u, 1500u}) {
      expect_exchanged(context.rank, comm, count, true);
      expect_exchanged(context.rank, comm, count, false);
    }
    // FIFOs of three channels each way to 56 ranks, and what does not grow with their number.
    EXPECT_LE(entries_of("/proc/self/fd"), 6u * (kRanks - kRanks / kHosts) + 150);
    EXPECT_LE(entries_of("/proc/self/task"), 8u);
  });
}

TEST(ManyHosts, OfEightRanksEachComeUpAndReduceGatherAndExchange) {
  ProcessOptions options;
  options.limit = std::chrono::minutes(4);
  options.environment = [](int rank) {
    auto environment = separate_hosts(rank);
    environment["NCCL_HOSTID"] = "h" + std::to_string(rank / (kRanks / kHosts));
    return environment;
  };
  run_ranks_as_processes("many_hosts", kRanks, options);
}

}  // namespace
}  // namespace weft::test
