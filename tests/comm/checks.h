// Short checks that the communicator tests share: a communicator works, and a rank's number in it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "nccl.h"
#include "tests/support/threads.h"

namespace weft::test {

inline int rank_of(ncclComm_t comm) {
  int rank = -1;
  WEFT_OK(ncclCommUserRank(comm, &rank));
  return rank;
}

inline int size_of(ncclComm_t comm) {
  int size = -1;
  WEFT_OK(ncclCommCount(comm, &size));
  return size;
}

// Sums rank+1 over all ranks; every rank of the communicator must call it.
inline void expect_all_reduce_works(ncclComm_t comm, size_t count = 100) {
  const int n = size_of(comm);
  std::vector<int> data(count, rank_of(comm) + 1);
  WEFT_OK(ncclAllReduce(data.data(), data.data(), count, ncclInt32, ncclSum, comm, nullptr));
  EXPECT_EQ(data, std::vector<int>(count, n * (n + 1) / 2));
}

// Returns on rank `waiting` once every other rank has reached this line. What `waiting` then breaks
// cannot affect ranks that are still in an earlier call. The sends of the other ranks may fail.
inline void wait_until_all_are_here(ncclComm_t comm, int waiting) {
  const int n = size_of(comm);
  std::vector<int> words(static_cast<size_t>(n), 0);
  if (rank_of(comm) != waiting) {
    ncclSend(words.data(), 1, ncclInt32, waiting, comm, nullptr);
    return;
  }
  WEFT_OK(ncclGroupStart());
  for (int r = 0; r < n; ++r) {
    if (r == waiting) continue;
    WEFT_OK(ncclRecv(&words[static_cast<size_t>(r)], 1, ncclInt32, r, comm, nullptr));
  }
  WEFT_OK(ncclGroupEnd());
}

// Kills the victim's process without warning, while the others wait for it.
inline void die_when_all_are_here(ncclComm_t comm, int victim) {
  wait_until_all_are_here(comm, victim);
  if (rank_of(comm) != victim) return;
  usleep(200000);
  kill(getpid(), SIGKILL);
}

// Rank r sends 100 * r + s to rank s.
inline void expect_alltoall_works(ncclComm_t comm) {
  const int n = size_of(comm);
  const int me = rank_of(comm);
  std::vector<int> in;
  std::vector<int> expected;
  for (int r = 0; r < n; ++r) {
    in.push_back(100 * me + r);
    expected.push_back(100 * r + me);
  }
  std::vector<int> out(in.size(), -1);
  WEFT_OK(ncclAlltoAll(in.data(), out.data(), 1, ncclInt32, comm, nullptr));
  EXPECT_EQ(out, expected);
}

}  // namespace weft::test
