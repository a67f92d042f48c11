// Every generator gives schedules that verify() accepts and that compute the right result, for
// every collective it supports.
#include "algorithms/generators/generators.h"

#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/schedule/lower.h"
#include "src/schedule/verify.h"
#include "tests/schedule/random_order_run.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

// Calls visit(collective, in_place) for all kinds, roots and placements that a generator supports
// at `n` ranks.
template <typename Visit>
void for_supported(const Generator& generator, int n, Visit visit) {
  for (int kind = 0; kind < kCollectiveKinds; kind++) {
    Collective c{static_cast<CollectiveKind>(kind), n, 0};
    for (c.root = 0; c.root < (c.rooted() ? n : 1); c.root++) {
      if (!generator.supports(c)) continue;
      for (const bool in_place : {false, true}) visit(c, in_place);
    }
  }
}

std::string named(const Generator& generator, const Collective& c, bool in_place) {
  return fmt::format("{} {} ranks {} root {}{}", generator.name, name(c.kind), c.nranks, c.root,
                     in_place ? " in place" : "");
}

class EveryGenerator : public testing::TestWithParam<size_t> {
 protected:
  const Generator& generator() const { return generators()[GetParam()]; }
};

TEST_P(EveryGenerator, IsAcceptedForAllItClaims) {
  int accepted = 0;
  for (const int n : {1, 2, 3, 4, 5, 7, 8, 13, 16}) {
    for_supported(generator(), n, [&](const Collective& c, bool in_place) {
      const Schedule schedule = generator().make(c, in_place);
      EXPECT_EQ(schedule.name, generator().name);
      EXPECT_EQ(schedule.collective, c);
      EXPECT_NO_THROW(verify(schedule, in_place)) << named(generator(), c, in_place);
      accepted++;
    });
  }
  EXPECT_GT(accepted, 0);
}

TEST_P(EveryGenerator, NeedsFifosOfNoMoreThanTwoMessagesAtManyRanks) {
  for (const int n : {31, 64}) {
    for (const CollectiveKind kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kAllToAll, CollectiveKind::kGather}) {
      const Collective c{kind, n, n / 2};
      if (generator().supports(c)) {
        EXPECT_NO_THROW(verify(generator().make(c, true), true, 2)) << named(generator(), c, true);
      }
    }
  }
}

TEST_P(EveryGenerator, DoesTheRightThingInAnyOrderWithAndWithoutLending) {
  const uint64_t seed = test_seed();
  uint64_t runs = 0;
  for (const int n : {1, 2, 3, 4, 5, 8}) {
    for_supported(generator(), n, [&](const Collective& c, bool in_place) {
      const VerifiedSchedule verified = verify(generator().make(c, in_place), in_place);
      for (const bool lend : {false, true})
        for (int i = 0; i < (n > 5 ? 1 : 4); i++)
          EXPECT_EQ(simulate(verified, {2, lend, mix(seed, runs++)}), "")
              << named(generator(), c, in_place);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryGenerator, testing::Range(size_t{0}, generators().size()),
                         [](const auto& tested) {
                           return std::string(generators()[tested.param].name);
                         });

TEST(Generators, AreFoundByNameAndNotByAnother) {
  for (const Generator& generator : generators())
    EXPECT_EQ(find_generator(generator.name), &generator);
  EXPECT_EQ(find_generator("host_fifos"), nullptr);
  EXPECT_EQ(find_generator(""), nullptr);
}

TEST(Collectives, AreParsedByTheNamesTheyPrint) {
  for (int kind = 0; kind < kCollectiveKinds; kind++)
    EXPECT_EQ(parse_collective(name(static_cast<CollectiveKind>(kind))),
              static_cast<CollectiveKind>(kind));
  EXPECT_FALSE(parse_collective("allreduce"));
}

TEST(Collectives, HaveAGeneratorForEveryKindAndManyNumbersOfRanks) {
  for (int kind = 0; kind < kCollectiveKinds; kind++) {
    for (const int n : {1, 2, 3, 64, 65, 100, 512}) {
      const Collective c{static_cast<CollectiveKind>(kind), n, 0};
      if (c.kind == CollectiveKind::kSendRecv && n != 2) continue;
      bool any = false;
      for (const Generator& generator : generators()) any = any || generator.supports(c);
      EXPECT_TRUE(any) << name(c.kind) << " of " << n << " ranks";
    }
  }
}

TEST(Programs, SayWhereABroadcastIsPassedOn) {
  const auto senders = [](const Generator& generator, CollectiveKind kind) {
    std::string all;  // one letter per rank
    const VerifiedSchedule verified = verify(generator.make({kind, 4, 1}, false), false);
    for (int r = 0; r < 4; r++) all += lower(verified, r).is_passed_on() ? 'p' : '-';
    return all;
  };
  EXPECT_EQ(senders(kDirect, CollectiveKind::kBroadcast), "----");
  EXPECT_EQ(senders(kRing, CollectiveKind::kBroadcast), "-ppp") << "rank 0 is the last";
  EXPECT_EQ(senders(kRing, CollectiveKind::kReduce), "----");
}

}  // namespace
}  // namespace weft::test
