// The graph of processes that watch each other. tests/faults has processes that die.
#include "src/comm/peer_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace weft::test {
namespace {

// The processes that news from `from` reaches, if those in `silent` pass nothing on.
size_t reached(size_t count, size_t from, const std::vector<bool>& silent) {
  std::vector<bool> seen(count, false);
  std::vector<size_t> next{from};
  seen[from] = true;
  size_t total = 0;
  while (!next.empty()) {
    const size_t at = next.back();
    next.pop_back();
    total++;
    for (const size_t n : PeerWatch::neighbours(at, count)) {
      if (seen[n] || silent[n]) continue;
      seen[n] = true;
      next.push_back(n);
    }
  }
  return total;
}

TEST(PeerWatch, ConnectsBothEndsOfEveryEdge) {
  for (size_t count = 1; count < 40; count++)
    for (size_t i = 0; i < count; i++)
      for (const size_t n : PeerWatch::neighbours(i, count)) {
        const auto back = PeerWatch::neighbours(n, count);
        EXPECT_NE(n, i);
        EXPECT_TRUE(std::binary_search(back.begin(), back.end(), i)) << i << " " << n;
      }
}

TEST(PeerWatch, HasFewConnectionsEvenInLargeJobs) {
  EXPECT_EQ(PeerWatch::neighbours(0, 1).size(), 0u);
  EXPECT_EQ(PeerWatch::neighbours(0, 5).size(), 4u);
  EXPECT_LE(PeerWatch::neighbours(17, 1024).size(), 20u);
}

TEST(PeerWatch, ReachesEverybodyAroundAnyTwoSilentProcesses) {
  for (const size_t count : {3u, 4u, 6u, 9u, 16u, 33u})
    for (size_t a = 1; a < count; a++)
      for (size_t b = 1; b < count; b++) {
        std::vector<bool> silent(count, false);
        silent[a] = silent[b] = true;
        EXPECT_EQ(reached(count, 0, silent), count - (a == b ? 1 : 2)) << count << " " << a << b;
      }
}

}  // namespace
}  // namespace weft::test
