// Ranks that disagree about a collective get an error. They do not hang and do not get wrong data.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/comm/checks.h"
#include "tests/support/sampling.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

// Runs call(rank, comm, buffer) on two ranks. At least one must fail within 20 s. Aborts both at
// the end.
void expect_detected(const std::function<ncclResult_t(int, ncclComm_t, char*)>& call) {
  CommSet set(2);
  std::vector<PendingCall> pending;
  for (int r = 0; r < 2; ++r) {
    ncclComm_t comm = set[r];
    pending.emplace_back([call, r, comm] {
      std::vector<char> buffer(size_t{1} << 20, 1);
      return call(r, comm, buffer.data());
    });
  }
  bool failed = false;
  const auto deadline = std::chrono::steady_clock::now() + patience(std::chrono::seconds(20));
  ncclResult_t results[2] = {ncclNumResults, ncclNumResults};
  while (!failed && std::chrono::steady_clock::now() < deadline) {
    for (size_t r = 0; r < 2; ++r) {
      results[r] = pending[r].wait_for(std::chrono::milliseconds(10));
      failed = failed || (results[r] != ncclSuccess && results[r] != ncclNumResults);
    }
    if (results[0] == ncclSuccess && results[1] == ncclSuccess) break;
  }
  EXPECT_TRUE(failed) << "results " << results[0] << " and " << results[1] << " (8: still waiting)";
  for (int r = 0; r < 2; ++r) {
    ncclComm_t comm = set.take(r);
    PendingCall abort([comm] { return ncclCommAbort(comm); });
    EXPECT_EQ(abort.wait_for(std::chrono::seconds(20)), ncclSuccess);
    EXPECT_NE(pending[static_cast<size_t>(r)].wait_for(std::chrono::seconds(20)), ncclNumResults)
        << "rank " << r << " is still blocked after abort";
  }
}

TEST(Mismatch, OfCountsInAllReduceIsDetected) {
  expect_detected([](int rank, ncclComm_t comm, char* buffer) {
    return ncclAllReduce(buffer, buffer, rank == 0 ? 1000 : 2000, ncclInt32, ncclSum, comm,
                         nullptr);
  });
}

TEST(Mismatch, OfSmallCountsInAllReduceIsDetected) {
  expect_detected([](int rank, ncclComm_t comm, char* buffer) {
    return ncclAllReduce(buffer, buffer, rank == 0 ? 1 : 2, ncclInt32, ncclSum, comm, nullptr);
  });
}

TEST(Mismatch, OfLargeCountsInAllReduceIsDetected) {
  expect_detected([](int rank, ncclComm_t comm, char* buffer) {
    return ncclAllReduce(buffer, buffer, rank == 0 ? 200000 : 250000, ncclInt32, ncclSum, comm,
                         nullptr);
  });
}

TEST(Mismatch, OfCountsInBroadcastIsDetected) {
  expect_detected([](int rank, ncclComm_t comm, char* buffer) {
    return ncclBroadcast(buffer, buffer, rank == 0 ? 300 : 200, ncclInt32, 0, comm, nullptr);
  });
}

TEST(Mismatch, OfTypesOfEqualSizeIsDetected) {
  expect_detected([](int rank, ncclComm_t comm, char* buffer) {
    return ncclAllReduce(buffer, buffer, 1000, rank == 0 ? ncclInt32 : ncclFloat32, ncclSum, comm,
                         nullptr);
  });
}

TEST(Mismatch, OfOperationsIsDetected) {
  expect_detected([](int rank, ncclComm_t comm, char* buffer) {
    return rank == 0 ? ncclAllReduce(buffer, buffer, 1000, ncclInt32, ncclSum, comm, nullptr)
                     : ncclBroadcast(buffer, buffer, 1000, ncclInt32, 0, comm, nullptr);
  });
}

TEST(Mismatch, OfRootsIsDetected) {
  // Two roots both just send. The next operation finds their messages.
  expect_detected([](int rank, ncclComm_t comm, char* buffer) {
    const ncclResult_t first = ncclBroadcast(buffer, buffer, 1000, ncclInt32, rank, comm, nullptr);
    return first != ncclSuccess
               ? first
               : ncclAllReduce(buffer, buffer, 10, ncclInt32, ncclSum, comm, nullptr);
  });
}

TEST(Mismatch, OfSendAndReceiveCountsIsDetected) {
  expect_detected([](int rank, ncclComm_t comm, char* buffer) {
    return rank == 0 ? ncclSend(buffer, 100, ncclInt32, 1, comm, nullptr)
                     : ncclRecv(buffer, 90, ncclInt32, 0, comm, nullptr);
  });
}

}  // namespace
}  // namespace weft::test
