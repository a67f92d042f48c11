// Schedules whose partial sums travel as float are proved, and no partial sum stays in 16 bits.
#include "algorithms/generators/widened.h"

#include <gtest/gtest.h>

#include "algorithms/generators/generators.h"

namespace weft::test {
namespace {

constexpr CollectiveKind kSums[] = {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
                                    CollectiveKind::kReduce};

// Every step that makes a partial sum sends it wide and keeps nothing of it.
void check_wide(const VerifiedSchedule& proved) {
  const Schedule& s = proved.schedule();
  for (size_t r = 0; r < s.ranks.size(); r++)
    for (size_t l = 0; l < s.ranks[r].lanes.size(); l++)
      for (size_t k = 0; k < s.ranks[r].lanes[l].steps.size(); k++) {
        const Step& step = s.ranks[r].lanes[l].steps[k];
        const bool completes =
            proved.facts(static_cast<int>(r), static_cast<int>(l), static_cast<int>(k)).completes;
        if (step.from.size() < 2) continue;
        for (const Operand& to : step.to) {
          EXPECT_TRUE(completes || to.kind == Operand::Kind::kPeer) << s.name;
          EXPECT_EQ(to.codec, completes ? 0 : 1) << s.name;
        }
      }
}

TEST(Widened, SchedulesAreProvedAndKeepNoPartialSum) {
  int made = 0;
  for (const Generator& generator : generators())
    for (const CollectiveKind kind : kSums)
      for (const int n : {2, 3, 4, 8})
        for (const bool in_place : {false, true}) {
          const Collective c{kind, n, n / 2};
          if (generator.peer_memory || generator.cpu_nodes > 0 || !generator.supports(c)) continue;
          const VerifiedSchedule proved = verify(generator.make(c, in_place), in_place);
          const auto wide = widened(proved);
          if (!wide) {
            EXPECT_TRUE(has_partial_sums(proved)) << generator.name;
            continue;
          }
          check_wide(verify(*wide, in_place));
          made += has_partial_sums(proved) ? 1 : 0;
        }
  EXPECT_GE(made, 24);
}

TEST(Widened, RingsCanAlwaysBe) {
  for (const CollectiveKind kind : kSums)
    for (int n = 2; n <= 17; n++)
      EXPECT_TRUE(widened(verify(kRing.make({kind, n, 1}, false), false)).has_value()) << n;
}

}  // namespace
}  // namespace weft::test
