// Straight messages in many schedules: both ends agree, and every order of steps gives the right
// result. Mutants have straight messages too, see mutation_test.cc.
#include <gtest/gtest.h>

#include <algorithm>

#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"
#include "src/schedule/schedule_graph.h"
#include "src/schedule/straight.h"
#include "tests/schedule/random_order_run.h"
#include "tests/simulator/random_schedules.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

StraightLists proved(const VerifiedSchedule& verified) {
  StraightLists lists;
  for (int r = 0; r < static_cast<int>(verified.schedule().ranks.size()); r++)
    lists.push_back(straight_places(verified, r));
  return lists;
}

// Every message whose receiver has a place for it, whatever happens there in the meantime.
StraightLists reckless(const VerifiedSchedule& verified) {
  const ScheduleGraph& g = verified.graph();
  const auto place_at = [&](int32_t receiver) -> StraightPlace {
    const Step& step = *g.steps[static_cast<size_t>(receiver)];
    if (step.from.size() == 1 && step.count > 0)
      for (const Operand& to : step.to)
        if (to.kind == Operand::Kind::kLocal && to.buffer != Buffer::kInput)
          return {to.buffer, to.index};
    return {};
  };
  StraightLists lists(verified.schedule().ranks.size());
  for (size_t n = 0; n < g.steps.size(); n++) {
    auto& list = lists[static_cast<size_t>(g.id(static_cast<int32_t>(n)).rank)];
    for (const Operand& from : g.steps[n]->from)
      list.push_back(from.kind == Operand::Kind::kPeer ? place_at(static_cast<int32_t>(n))
                                                       : StraightPlace{});
    for (size_t i = 0; i < g.steps[n]->to.size(); i++) {
      const int32_t receiver = g.receiver(static_cast<int32_t>(n), i);
      list.push_back(receiver >= 0 ? place_at(receiver) : StraightPlace{});
    }
  }
  return lists;
}

int64_t count_straight(const StraightLists& lists) {
  int64_t count = 0;
  for (const auto& list : lists)
    count += std::count_if(list.begin(), list.end(),
                           [](const StraightPlace& place) { return place.index >= 0; });
  return count;
}

// Both ends of every message have the same place, and nothing else has one.
void expect_agreement(const VerifiedSchedule& verified, const StraightLists& lists) {
  const ScheduleGraph& g = verified.graph();
  std::vector<StraightPlace> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  ASSERT_EQ(all.size(), g.operand_fifo.size());
  std::vector<StraightPlace> sent(g.senders.size()), received(g.senders.size());
  for (size_t n = 0; n < g.steps.size(); n++) {
    const size_t sources = g.steps[n]->from.size(), operands = sources + g.steps[n]->to.size();
    for (size_t i = 0; i < operands; i++) {
      const size_t k = static_cast<size_t>(g.first_operand[n]) + i;
      if (g.operand_fifo[k] < 0) {
        EXPECT_LT(all[k].index, 0);
        continue;
      }
      const auto& fifo = g.fifos[static_cast<size_t>(g.operand_fifo[k])];
      (i < sources ? received
                   : sent)[static_cast<size_t>(fifo.first_message + g.operand_message[k])] = all[k];
    }
  }
  EXPECT_EQ(sent, received) << verified.schedule().name;
}

// A schedule of a random generator, or along random trees.
VerifiedSchedule random_schedule(Random& random) {
  constexpr CollectiveKind kForests[] = {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
                                         CollectiveKind::kBroadcast, CollectiveKind::kReduce};
  const bool in_place = random.below(2) == 0, forest = random.below(3) == 0;
  for (;;) {
    Collective c;
    c.kind = forest ? kForests[random.below(4)]
                    : static_cast<CollectiveKind>(random.below(kCollectiveKinds));
    c.nranks = 2 + static_cast<int>(random.below(5));
    c.root = c.rooted() ? static_cast<int>(random.below(static_cast<uint64_t>(c.nranks))) : 0;
    if (forest)
      return verify(random_forest(c, 1 + static_cast<int>(random.below(2)), random.next()), false);
    const Generator& generator = generators()[random.below(generators().size())];
    if (generator.supports(c)) return verify(generator.make(c, in_place), in_place);
  }
}

TEST(StraightOrders, BothEndsAgreeAndAnyOrderGivesTheRightResult) {
  Random random(mix(test_seed(), 23));
  int64_t straight = 0;
  for (int i = 0; i < test_samples(100); i++) {
    const VerifiedSchedule verified = random_schedule(random);
    const StraightLists lists = proved(verified);
    straight += count_straight(lists);
    expect_agreement(verified, lists);
    for (int run = 0; run < 10; run++)
      ASSERT_EQ(simulate(verified, {2, false, random.next(), &lists}), "")
          << verified.schedule().name;
  }
  EXPECT_GT(straight, 0);
}

// Chunks pass one by one through `slots` chunks of scratch on rank 1. A lane takes them out of the
// scratch, and tells rank 0 so after each if `told`.
VerifiedSchedule through_slots(int chunks, int slots, bool told) {
  Schedule s = blank("slots", {CollectiveKind::kBroadcast, 2, 0}, chunks, 2);
  s.ranks[1].scratch_chunks = slots;
  auto &root = s.ranks[0].lanes[0].steps, &into = s.ranks[1].lanes[0].steps,
       &out = s.ranks[1].lanes[1].steps;
  for (int c = 0; c < chunks; c++) {
    const bool again = c >= slots;
    if (told && again) root.push_back({{Operand::peer(1)}, {}, 0, {}});
    root.push_back({{Operand::input(c)}, {Operand::output(c), Operand::peer(1)}, 1, {}});
    Step take{{Operand::peer(0)}, {Operand::scratch(c % slots)}, 1, {}};
    // The other lane has a copy and a token per chunk, or copies alone.
    if (again) take.after.push_back({1, (c - slots) * (told ? 2 : 1)});
    into.push_back(take);
    out.push_back({{Operand::scratch(c % slots)}, {Operand::output(c)}, 1, {{0, c}}});
    if (told && c + slots < chunks) out.push_back({{}, {Operand::peer(0)}, 0, {}});
  }
  return verify(s, false);
}

TEST(StraightOrders, ScratchThatIsUsedAgainIsRightIn200Orders) {
  for (const int slots : {1, 2, 3})
    for (const bool told : {false, true}) {
      const VerifiedSchedule verified = through_slots(6, slots, told);
      const StraightLists lists = proved(verified);
      expect_agreement(verified, lists);
      EXPECT_EQ(count_straight(lists), 2 * (told ? 6 : slots));
      for (uint64_t seed = 0; seed < 200; seed++)
        ASSERT_EQ(simulate(verified, {2, false, seed, &lists}), "") << slots << ' ' << told;
    }
}

// The oracle sees mistakes: with all messages straight, some orders give wrong results.
TEST(StraightOrders, RecklessMessagesGiveWrongResults) {
  int wrong = 0;
  const VerifiedSchedule verified = through_slots(6, 2, false);
  const StraightLists lists = reckless(verified);
  expect_agreement(verified, lists);
  for (uint64_t seed = 0; seed < 200; seed++)
    wrong += simulate(verified, {2, false, seed, &lists}).empty() ? 0 : 1;
  EXPECT_GT(wrong, 20);
  // Generated schedules that are not safe by chance.
  int broken = 0, refused = 0;
  for (const Generator& generator : generators())
    for (int kind = 0; kind < kCollectiveKinds; kind++)
      for (const bool in_place : {false, true}) {
        const Collective c{static_cast<CollectiveKind>(kind), 4, 0};
        if (!generator.supports(c)) continue;
        const VerifiedSchedule generated = verify(generator.make(c, in_place), in_place);
        const StraightLists all = reckless(generated);
        if (proved(generated) == all) continue;
        refused++;
        bool fails = false;
        for (uint64_t seed = 0; seed < 50 && !fails; seed++)
          fails = !simulate(generated, {2, false, seed, &all}).empty();
        broken += fails ? 1 : 0;
      }
  RecordProperty("refused", refused);
  RecordProperty("broken", broken);
  EXPECT_GT(broken, 0) << "of " << refused;
}

}  // namespace
}  // namespace weft::test
