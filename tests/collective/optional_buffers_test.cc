// A buffer that an operation does not use on a rank may be null. A count of 0 needs no buffer.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/support/threads.h"

namespace weft::test {
namespace {

constexpr int kRanks = 3;
constexpr size_t kBufferCount = 10;

std::vector<int> iota(int first, size_t n) {
  std::vector<int> v(n);
  std::iota(v.begin(), v.end(), first);
  return v;
}

TEST(Broadcast, NeedsNoSendBufferExceptAtTheRoot) {
  run_ranks_as_threads(kRanks, [](int rank, ncclComm_t comm) {
    const std::vector<int> in = iota(5, kBufferCount);
    std::vector<int> out(kBufferCount, -1);
    const int root = 1;
    WEFT_OK(ncclBroadcast(rank == root ? in.data() : nullptr, out.data(), kBufferCount, ncclInt32,
                          root, comm, nullptr));
    EXPECT_EQ(out, in);
  });
}

TEST(Reduce, NeedsNoReceiveBufferExceptAtTheRoot) {
  run_ranks_as_threads(kRanks, [](int rank, ncclComm_t comm) {
    const std::vector<int> in(kBufferCount, rank + 1);
    std::vector<int> out(kBufferCount, -1);
    const int root = 2;
    WEFT_OK(ncclReduce(in.data(), rank == root ? out.data() : nullptr, kBufferCount, ncclInt32,
                       ncclSum, root, comm, nullptr));
    EXPECT_EQ(out, std::vector<int>(kBufferCount, rank == root ? 6 : -1));
  });
}

TEST(Gather, NeedsNoReceiveBufferExceptAtTheRoot) {
  run_ranks_as_threads(kRanks, [](int rank, ncclComm_t comm) {
    const std::vector<int> in = iota(rank * static_cast<int>(kBufferCount), kBufferCount);
    std::vector<int> out(kBufferCount * kRanks, -1);
    WEFT_OK(ncclGather(in.data(), rank == 0 ? out.data() : nullptr, kBufferCount, ncclInt32, 0,
                       comm, nullptr));
    EXPECT_EQ(out, rank == 0 ? iota(0, kBufferCount * kRanks)
                             : std::vector<int>(kBufferCount * kRanks, -1));
  });
}

TEST(Scatter, NeedsNoSendBufferExceptAtTheRoot) {
  run_ranks_as_threads(kRanks, [](int rank, ncclComm_t comm) {
    const std::vector<int> in = iota(0, kBufferCount * kRanks);
    std::vector<int> out(kBufferCount, -1);
    WEFT_OK(ncclScatter(rank == 2 ? in.data() : nullptr, out.data(), kBufferCount, ncclInt32, 2,
                        comm, nullptr));
    EXPECT_EQ(out, iota(rank * static_cast<int>(kBufferCount), kBufferCount));
  });
}

TEST(ZeroCount, NeedsNoBuffersInAnyOperation) {
  run_ranks_as_threads(kRanks, [](int rank, ncclComm_t comm) {
    WEFT_OK(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, comm, nullptr));
    WEFT_OK(ncclReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, 0, comm, nullptr));
    WEFT_OK(ncclBroadcast(nullptr, nullptr, 0, ncclFloat32, 0, comm, nullptr));
    WEFT_OK(ncclAllGather(nullptr, nullptr, 0, ncclFloat32, comm, nullptr));
    WEFT_OK(ncclReduceScatter(nullptr, nullptr, 0, ncclFloat32, ncclSum, comm, nullptr));
    WEFT_OK(ncclAlltoAll(nullptr, nullptr, 0, ncclFloat32, comm, nullptr));
    WEFT_OK(ncclGroupStart());
    WEFT_OK(ncclSend(nullptr, 0, ncclInt8, (rank + 1) % kRanks, comm, nullptr));
    WEFT_OK(ncclRecv(nullptr, 0, ncclInt8, (rank + 2) % kRanks, comm, nullptr));
    WEFT_OK(ncclGroupEnd());
  });
}

}  // namespace
}  // namespace weft::test
