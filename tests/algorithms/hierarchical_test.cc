// Hierarchical schedules are right for any map of hosts, and no data crosses between hosts more
// often than it must.
#include "algorithms/generators/hierarchical.h"

#include <gtest/gtest.h>

#include <set>

#include "algorithms/generators/generators.h"
#include "algorithms/generators/host_map.h"
#include "src/base/error.h"
#include "src/schedule/verify.h"
#include "tests/schedule/random_order_run.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

using Hosts = std::vector<int>;

Hosts equal_hosts(int hosts, int ranks) {
  Hosts map;
  for (int r = 0; r < hosts * ranks; r++) map.push_back(r / ranks);
  return map;
}

const std::vector<Hosts>& host_maps() {
  static const std::vector<Hosts> maps = {
      equal_hosts(2, 4),
      equal_hosts(4, 2),
      equal_hosts(3, 3),
      equal_hosts(2, 1),
      equal_hosts(1, 5),
      equal_hosts(9, 2),                 // more hosts than talk directly
      {0, 0, 0, 1},                      // 3 + 1
      {1, 0, 0, 0},                      // 1 + 3
      {0, 1, 0, 1, 0, 1, 0, 1},          // interleaved
      {7, 3, 3, 7, 9, 9, 9, 7, 9},       // any numbers, three hosts
      {0, 0, 0, 0, 0, 1, 1, 2, 2, 2},    // 5 + 2 + 3
      {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9}  // nine hosts of one rank and one of two
  };
  return maps;
}

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce,     CollectiveKind::kAllGather,
                                     CollectiveKind::kReduceScatter, CollectiveKind::kBroadcast,
                                     CollectiveKind::kReduce,        CollectiveKind::kAllToAll};

std::string named(const Collective& c, const Hosts& hosts) {
  std::string text = fmt::format("{} root {}, hosts", name(c.kind), c.root);
  for (const int h : hosts) text += fmt::format(" {}", h);
  return text;
}

// All collectives and roots on all maps.
template <typename Visit>
void for_all(Visit visit) {
  for (const Hosts& hosts : host_maps())
    for (const CollectiveKind kind : kKinds) {
      Collective c{kind, static_cast<int>(hosts.size()), 0};
      for (c.root = 0; c.root < (c.rooted() ? c.nranks : 1); c.root++) visit(c, hosts);
    }
}

TEST(Hierarchical, IsProvedForAnyMapOfHosts) {
  for_all([](const Collective& c, const Hosts& hosts) {
    for (const bool in_place : {false, true})
      EXPECT_NO_THROW({
        const VerifiedSchedule verified = verify(make_hierarchical(c, hosts), in_place, 2);
        EXPECT_FALSE(verified.uniform_only()) << named(c, hosts);
      }) << named(c, hosts);
  });
}

TEST(Hierarchical, DoesTheRightThingInAnyOrderWithAndWithoutLending) {
  uint64_t runs = 0;
  for_all([&](const Collective& c, const Hosts& hosts) {
    if (c.rooted() && c.root % 3 != 0) return;
    for (const bool in_place : {false, true}) {
      const VerifiedSchedule verified = verify(make_hierarchical(c, hosts), in_place);
      for (const bool lend : {false, true})
        EXPECT_EQ(simulate(verified, {2, lend, mix(test_seed(), runs++)}), "") << named(c, hosts);
    }
  });
}

TEST(Hierarchical, IsProvedForSixtyFourRanksOfEightAndOfSixteenHosts) {
  for (const int hosts : {8, 16})
    for (const CollectiveKind kind : kKinds) {
      const Collective c{kind, 64, kind == CollectiveKind::kReduce ? 17 : 0};
      const Hosts map = equal_hosts(hosts, 64 / hosts);
      EXPECT_NO_THROW(verify(make_hierarchical(c, map), true, 2)) << named(c, map);
    }
}

// What every host sends to others and receives from them, in blocks of the collective.
struct Crossing {
  std::vector<double> sent, received;
  std::vector<double> sent_by_rank;
};

Crossing crossing(const Schedule& s, const HostMap& map) {
  const auto hosts = static_cast<size_t>(map.hosts());
  Crossing total{std::vector<double>(hosts), std::vector<double>(hosts),
                 std::vector<double>(s.ranks.size())};
  for (size_t r = 0; r < s.ranks.size(); r++)
    for (const Lane& lane : s.ranks[r].lanes)
      for (const Step& step : lane.steps)
        for (const Operand& to : step.to) {
          if (to.kind != Operand::Kind::kPeer) continue;
          const int here = map.host_of(static_cast<int>(r)), there = map.host_of(to.index);
          if (here == there) continue;
          const double blocks = static_cast<double>(step.count) / s.chunks;
          total.sent[static_cast<size_t>(here)] += blocks;
          total.received[static_cast<size_t>(there)] += blocks;
          total.sent_by_rank[r] += blocks;
        }
  return total;
}

TEST(Hierarchical, SendsBetweenHostsWhatTheBoundSaysAndNoMore) {
  for_all([](const Collective& c, const Hosts& hosts) {
    const HostMap map(hosts);
    const Crossing got = crossing(make_hierarchical(c, hosts), map);
    const double n = c.nranks, several = map.hosts();
    for (int h = 0; h < map.hosts(); h++) {
      const auto i = static_cast<size_t>(h);
      const double sent = got.sent[i], received = got.received[i];
      const auto local = static_cast<double>(map.on(h).size());
      const bool root = h == map.host_of(c.root);
      if (c.kind == CollectiveKind::kAllReduce) {
        EXPECT_NEAR(sent, 2 * (several - 1) / several, 1e-9) << named(c, hosts);
        EXPECT_NEAR(received, 2 * (several - 1) / several, 1e-9) << named(c, hosts);
      } else if (c.kind == CollectiveKind::kAllGather) {
        EXPECT_NEAR(received, n - local, 1e-9) << named(c, hosts);
      } else if (c.kind == CollectiveKind::kReduceScatter) {
        EXPECT_NEAR(sent, n - local, 1e-9) << named(c, hosts);
      } else if (c.kind == CollectiveKind::kAllToAll) {
        EXPECT_NEAR(sent, local * (n - local), 1e-9) << named(c, hosts);
        EXPECT_NEAR(received, local * (n - local), 1e-9) << named(c, hosts);
      } else if (c.kind == CollectiveKind::kBroadcast) {
        EXPECT_NEAR(received, root ? 0 : 1, 1e-9) << named(c, hosts);
        EXPECT_LE(sent, 1 + 1e-9) << named(c, hosts);
      } else {
        EXPECT_NEAR(sent, root ? 0 : 1, 1e-9) << named(c, hosts);
        EXPECT_LE(received, 1 + 1e-9) << named(c, hosts);
      }
    }
  });
}

TEST(Chains, EnterEveryHostOnceFromAnyRoot) {
  for_all([](const Collective& c, const Hosts& hosts) {
    if (!c.rooted()) return;
    const Schedule chain = kRing.make_on(hosts, c, false);
    EXPECT_NO_THROW(verify(chain, true)) << named(c, hosts);
    double crossings = 0;
    for (const double sent : crossing(chain, HostMap(hosts)).sent) crossings += sent;
    EXPECT_EQ(crossings, HostMap(hosts).hosts() - 1) << named(c, hosts);
  });
}

TEST(Hierarchical, GivesEveryRankOfEqualHostsItsShareOfTheNetwork) {
  for (const auto& hosts : {equal_hosts(2, 4), equal_hosts(4, 2), equal_hosts(8, 8)})
    for (const CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                                      CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll}) {
      const Collective c{kind, static_cast<int>(hosts.size()), 0};
      const Crossing got = crossing(make_hierarchical(c, hosts), HostMap(hosts));
      for (const double sent : got.sent_by_rank)
        EXPECT_NEAR(sent, got.sent_by_rank[0], 1e-9) << named(c, hosts);
      EXPECT_GT(got.sent_by_rank[0], 0);
    }
}

TEST(Hierarchical, ExchangesOneMessageWithEveryOtherHost) {
  for (const auto& hosts : {equal_hosts(2, 4), equal_hosts(4, 2), equal_hosts(8, 8)}) {
    const HostMap map(hosts);
    const Collective c{CollectiveKind::kAllToAll, static_cast<int>(hosts.size()), 0};
    const Schedule s = make_hierarchical(c, hosts);
    for (int r = 0; r < c.nranks; r++) {
      std::vector<int> sent(static_cast<size_t>(map.hosts()));
      for (const Lane& lane : s.ranks[static_cast<size_t>(r)].lanes)
        for (const Step& step : lane.steps)
          for (const Operand& to : step.to)
            if (to.kind == Operand::Kind::kPeer) sent[static_cast<size_t>(map.host_of(to.index))]++;
      for (int h = 0; h < map.hosts(); h++)
        EXPECT_TRUE(h == map.host_of(r) || sent[static_cast<size_t>(h)] == 1) << named(c, hosts);
    }
  }
}

TEST(Hierarchical, HasFewLanesAndTheUsualChannels) {
  for_all([](const Collective& c, const Hosts& hosts) {
    const Schedule s = make_hierarchical(c, hosts);
    for (const RankSchedule& rank : s.ranks) {
      EXPECT_LE(rank.lanes.size(), 5u) << named(c, hosts);
      for (const Lane& lane : rank.lanes) {
        EXPECT_FALSE(lane.steps.empty()) << named(c, hosts);
        for (const Step& step : lane.steps)
          for (const auto* operands : {&step.from, &step.to})
            for (const Operand& operand : *operands)
              EXPECT_LT(operand.channel, kUsualChannels) << named(c, hosts);
      }
    }
  });
  EXPECT_EQ(make_hierarchical({CollectiveKind::kAllReduce, 8, 0}, equal_hosts(2, 4))
                .ranks[0]
                .lanes.size(),
            4u);
}

TEST(Hierarchical, RefusesHostsWhoseSumsHaveTooManySources) {
  const Collective sum{CollectiveKind::kAllReduce, 128, 0},
      copy{CollectiveKind::kAllGather, 128, 0};
  EXPECT_FALSE(supports_hierarchical(sum, equal_hosts(2, 64)));
  EXPECT_TRUE(supports_hierarchical(copy, equal_hosts(2, 64)));
  EXPECT_TRUE(supports_hierarchical(sum, equal_hosts(4, 32)));
  EXPECT_FALSE(supports_hierarchical({CollectiveKind::kGather, 8, 0}, equal_hosts(2, 4)));
}

}  // namespace
}  // namespace weft::test
