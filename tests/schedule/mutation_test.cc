// Broken schedules. A schedule that verify() accepts must compute the right result. A generated
// schedule needs every one of its steps.
#include <gtest/gtest.h>

#include "algorithms/generators/generators.h"
#include "src/base/error.h"
#include "src/schedule/verify.h"
#include "tests/schedule/random_order_run.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

struct Candidate {
  Collective collective;
  const Generator* generator = nullptr;
  bool in_place = false;
};

Candidate random_candidate(Random& random) {
  for (;;) {
    Candidate candidate;
    candidate.generator = &generators()[random.below(generators().size())];
    candidate.in_place = random.below(2) == 0;
    Collective& c = candidate.collective;
    c.kind = static_cast<CollectiveKind>(random.below(kCollectiveKinds));
    c.nranks = 2 + static_cast<int>(random.below(4));
    c.root = c.rooted() ? static_cast<int>(random.below(static_cast<uint64_t>(c.nranks))) : 0;
    if (candidate.generator->supports(c)) return candidate;
  }
}

Lane& random_lane(Schedule& s, Random& random) {
  RankSchedule& rank = s.ranks[random.below(s.ranks.size())];
  return rank.lanes[random.below(rank.lanes.size())];
}

void alter(Operand& operand, const Schedule& s, Random& random) {
  switch (random.below(4)) {
    case 0:
      operand.index += random.below(2) == 0 ? 1 : -1;
      break;
    case 1:
      operand.index = static_cast<int32_t>(random.below(s.ranks.size()));
      break;
    case 2:
      operand.channel = static_cast<int16_t>(1 - operand.channel);
      operand.buffer = static_cast<Buffer>(random.below(3));
      break;
    default:
      operand.kind = static_cast<Operand::Kind>(random.below(3));
      if (operand.kind == Operand::Kind::kRemote)
        operand.owner = static_cast<int32_t>(random.below(s.ranks.size()));
  }
}

// Makes one random change and returns its description.
std::string mutate(Schedule& s, Random& random) {
  Lane& lane = random_lane(s, random);
  if (lane.steps.empty()) return "nothing";
  const size_t n = random.below(lane.steps.size());
  Step& step = lane.steps[n];
  auto& operands = random.below(2) == 0 ? step.from : step.to;
  switch (random.below(10)) {
    case 0:
      lane.steps.erase(lane.steps.begin() + static_cast<std::ptrdiff_t>(n));
      return "a step dropped";
    case 1: {
      const Step copy = step;
      lane.steps.push_back(copy);
      return "a step repeated at the end";
    }
    case 2:
      std::swap(step, lane.steps[random.below(lane.steps.size())]);
      return "two steps exchanged";
    case 3: {
      Step moved = step;
      lane.steps.erase(lane.steps.begin() + static_cast<std::ptrdiff_t>(n));
      random_lane(s, random).steps.push_back(std::move(moved));
      return "a step moved to another lane";
    }
    case 4:
      if (!step.after.empty()) step.after.pop_back();
      return "a dependency dropped";
    case 5:
      step.after.push_back(
          {static_cast<int32_t>(random.below(3)), static_cast<int32_t>(random.below(4))});
      return "a dependency added";
    case 6:
      step.count += random.below(2) == 0 ? 1 : -1;
      return "a count changed";
    case 7:
      if (!operands.empty())
        operands.erase(operands.begin() +
                       static_cast<std::ptrdiff_t>(random.below(operands.size())));
      return "an operand dropped";
    case 8:
      if (!operands.empty()) operands.push_back(random.pick(operands));
      return "an operand repeated";
    default:
      if (!operands.empty()) alter(operands[random.below(operands.size())], s, random);
      return "an operand changed";
  }
}

TEST(Mutants, ThatVerifyAcceptsDoTheRightThing) {
  Random random(mix(test_seed(), 11));
  const int mutants = test_samples(6000);
  int refused = 0;
  for (int m = 0; m < mutants; m++) {
    const Candidate candidate = random_candidate(random);
    Schedule schedule = candidate.generator->make(candidate.collective, candidate.in_place);
    for (RankSchedule& rank : schedule.ranks) rank.scratch_chunks += 2;
    std::string changes;
    for (uint64_t changed = 0; changed <= random.below(2); changed++)
      changes += mutate(schedule, random) + "; ";
    const int depth = 1 + static_cast<int>(random.below(3));
    try {
      const VerifiedSchedule verified = verify(schedule, candidate.in_place, depth);
      StraightLists straight;
      for (int r = 0; r < static_cast<int>(verified.schedule().ranks.size()); r++)
        straight.push_back(straight_places(verified, r));
      for (uint64_t i = 0; i < 9; i++) {
        const std::string wrong = simulate(
            verified, {depth, i % 3 == 1, random.next(), i % 3 == 2 ? &straight : nullptr});
        ASSERT_EQ(wrong, "") << candidate.generator->name << ' ' << name(candidate.collective.kind)
                             << " of " << candidate.collective.nranks << " ranks, mutant " << m
                             << ": " << changes;
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ncclInvalidUsage) << error.what();
      refused++;
    }
  }
  EXPECT_GT(refused, mutants / 2) << "most changes break a schedule";
  EXPECT_LT(refused, mutants) << "some do not";
}

TEST(Mutants, WithAnyOneStepMissingAreRefused) {
  for (const Generator& generator : generators()) {
    for (int kind = 0; kind < kCollectiveKinds; kind++) {
      for (int n = 2; n <= 5; n++) {
        const Collective c{static_cast<CollectiveKind>(kind), n, n - 1};
        if (!generator.supports(c)) continue;
        const Schedule whole = generator.make(c, false);
        for (size_t r = 0; r < whole.ranks.size(); r++) {
          for (size_t l = 0; l < whole.ranks[r].lanes.size(); l++) {
            for (size_t step = 0; step < whole.ranks[r].lanes[l].steps.size(); step++) {
              Schedule schedule = whole;
              auto& steps = schedule.ranks[r].lanes[l].steps;
              steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(step));
              EXPECT_THROW(verify(schedule, false), Error)
                  << generator.name << ' ' << name(c.kind) << " of " << n << " ranks without rank "
                  << r << " lane " << l << " step " << step;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
