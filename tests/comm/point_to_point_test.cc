// Send and receive: matching, order, self, all-to-all-v, pipelines without groups.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/comm/checks.h"
#include "tests/support/sampling.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

TEST(SendRecv, WithoutAGroupWaitsForThePeer) {
  run_ranks_as_threads(2, [](int rank, ncclComm_t comm) {
    for (int round = 0; round < 100; ++round) {
      std::vector<int> data(static_cast<size_t>(round) * 97, rank == 0 ? round : -1);
      if (rank == 0) {
        WEFT_OK(ncclSend(data.data(), data.size(), ncclInt32, 1, comm, nullptr));
      } else {
        WEFT_OK(ncclRecv(data.data(), data.size(), ncclInt32, 0, comm, nullptr));
        EXPECT_EQ(data, std::vector<int>(data.size(), round));
      }
    }
  });
}

TEST(SendRecv, OfOneMegabyteBothWaysInAGroup) {
  run_ranks_as_threads(2, [](int rank, ncclComm_t comm) {
    std::vector<double> out(1 << 17, rank + 0.5);
    std::vector<double> in(1 << 17, -1);
    WEFT_OK(ncclGroupStart());
    WEFT_OK(ncclSend(out.data(), out.size(), ncclFloat64, 1 - rank, comm, nullptr));
    WEFT_OK(ncclRecv(in.data(), in.size(), ncclFloat64, 1 - rank, comm, nullptr));
    WEFT_OK(ncclGroupEnd());
    EXPECT_EQ(in, std::vector<double>(in.size(), 1.5 - rank));
  });
}

TEST(SendRecv, ToOneselfWorksInAGroup) {
  for (int n : {1, 3}) {
    run_ranks_as_threads(n, [](int rank, ncclComm_t comm) {
      std::vector<int> out(5000);
      std::iota(out.begin(), out.end(), rank);
      std::vector<int> in(5000, -1);
      WEFT_OK(ncclGroupStart());
      WEFT_OK(ncclSend(out.data(), out.size(), ncclInt32, rank, comm, nullptr));
      WEFT_OK(ncclRecv(in.data(), in.size(), ncclInt32, rank, comm, nullptr));
      WEFT_OK(ncclGroupEnd());
      EXPECT_EQ(in, out);
    });
  }
}

TEST(SendRecv, SeveralToOnePeerMatchInOrder) {
  run_ranks_as_threads(3, [](int rank, ncclComm_t comm) {
    constexpr int kMessages = 20;
    std::vector<std::vector<int>> messages;
    WEFT_OK(ncclGroupStart());
    for (int m = 0; m < kMessages; ++m) {
      const auto size = static_cast<size_t>(1 + m * 301);
      messages.emplace_back(size, rank == 0 ? m : -1);
      if (rank == 0) {
        WEFT_OK(ncclSend(messages.back().data(), size, ncclInt32, 2, comm, nullptr));
      }
      if (rank == 2) {
        WEFT_OK(ncclRecv(messages.back().data(), size, ncclInt32, 0, comm, nullptr));
      }
    }
    WEFT_OK(ncclGroupEnd());
    for (int m = 0; m < kMessages && rank == 2; ++m) {
      const auto& got = messages[static_cast<size_t>(m)];
      EXPECT_EQ(got, std::vector<int>(got.size(), m));
    }
  });
}

// The number of elements that rank `from` sends to rank `to`. Some send nothing.
size_t share(int from, int to, uint64_t salt) {
  const uint64_t h = mix(salt, static_cast<uint64_t>(from), static_cast<uint64_t>(to));
  return h % 4 == 0 ? 0 : h % 3000;
}

TEST(SendRecv, MakeAnAlltoAllWithUnevenCounts) {
  for (int n : {2, 5, 8}) {
    run_ranks_as_threads(n, [n](int rank, ncclComm_t comm) {
      for (uint64_t round = 0; round < 5; ++round) {
        std::vector<std::vector<int>> out;
        std::vector<std::vector<int>> in;
        for (int peer = 0; peer < n; ++peer) {
          out.emplace_back(share(rank, peer, round), 1000 * rank + peer);
          in.emplace_back(share(peer, rank, round), -1);
        }
        WEFT_OK(ncclGroupStart());
        for (int peer = 0; peer < n; ++peer) {
          auto& to = out[static_cast<size_t>(peer)];
          auto& from = in[static_cast<size_t>(peer)];
          WEFT_OK(ncclSend(to.data(), to.size(), ncclInt32, peer, comm, nullptr));
          WEFT_OK(ncclRecv(from.data(), from.size(), ncclInt32, peer, comm, nullptr));
        }
        WEFT_OK(ncclGroupEnd());
        for (int peer = 0; peer < n; ++peer) {
          const auto& got = in[static_cast<size_t>(peer)];
          EXPECT_EQ(got, std::vector<int>(got.size(), 1000 * peer + rank));
        }
      }
    });
  }
}

TEST(SendRecv, ManyToOneAndOneToManyInOneGroup) {
  run_ranks_as_threads(6, [](int rank, ncclComm_t comm) {
    std::vector<int> from_all(6, -1);
    int mine = rank * 7;
    int back = -1;
    std::vector<int> replies = {100, 101, 102, 103, 104, 105};
    WEFT_OK(ncclGroupStart());
    // Rank 0's messages to itself match in order: its number first, then its reply.
    WEFT_OK(ncclSend(&mine, 1, ncclInt32, 0, comm, nullptr));
    if (rank != 0) {
      WEFT_OK(ncclRecv(&back, 1, ncclInt32, 0, comm, nullptr));
    }
    for (int peer = 0; rank == 0 && peer < 6; ++peer) {
      WEFT_OK(ncclRecv(&from_all[static_cast<size_t>(peer)], 1, ncclInt32, peer, comm, nullptr));
      WEFT_OK(ncclSend(&replies[static_cast<size_t>(peer)], 1, ncclInt32, peer, comm, nullptr));
    }
    if (rank == 0) {
      WEFT_OK(ncclRecv(&back, 1, ncclInt32, 0, comm, nullptr));
    }
    WEFT_OK(ncclGroupEnd());
    EXPECT_EQ(back, 100 + rank);
    if (rank == 0) {
      EXPECT_EQ(from_all, std::vector<int>({0, 7, 14, 21, 28, 35}));
    }
  });
}

TEST(SendRecv, PassAlongAChainWithoutGroups) {
  run_ranks_as_threads(5, [](int rank, ncclComm_t comm) {
    std::vector<int> data(100000, rank == 0 ? 7 : -1);
    if (rank > 0) {
      WEFT_OK(ncclRecv(data.data(), data.size(), ncclInt32, rank - 1, comm, nullptr));
    }
    for (int& x : data) ++x;
    if (rank < 4) {
      WEFT_OK(ncclSend(data.data(), data.size(), ncclInt32, rank + 1, comm, nullptr));
    }
    EXPECT_EQ(data, std::vector<int>(data.size(), 8 + rank));
  });
}

TEST(SendRecv, ByOneThreadForAllRanks) {
  CommSet set(4);
  std::vector<int> out = {0, 1, 2, 3};
  std::vector<int> in(4, -1);
  WEFT_OK(ncclGroupStart());
  for (int r = 0; r < 4; ++r) {
    WEFT_OK(ncclSend(&out[static_cast<size_t>(r)], 1, ncclInt32, 3 - r, set[r], nullptr));
    WEFT_OK(ncclRecv(&in[static_cast<size_t>(r)], 1, ncclInt32, 3 - r, set[r], nullptr));
  }
  WEFT_OK(ncclGroupEnd());
  EXPECT_EQ(in, std::vector<int>({3, 2, 1, 0}));
}

}  // namespace
}  // namespace weft::test
