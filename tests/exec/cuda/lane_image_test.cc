// Lane images of all ranks of a schedule: both ends of a message find each other, and nothing of
// the schedule is lost.
#include "src/exec/cuda/lane_image.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "algorithms/generators/building.h"
#include "algorithms/generators/coded.h"
#include "algorithms/generators/generators.h"
#include "src/base/error.h"
#include "src/schedule/lane_weights.h"
#include "src/schedule/schedule_graph.h"
#include "tests/simulator/random_schedules.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

using cuda::LaneDependency;
using cuda::LaneImage;
using cuda::LaneOperand;
using cuda::LaneStep;

std::vector<LaneImage> images_of(const VerifiedSchedule& verified, bool straight = true,
                                 const VerifiedSchedule* also = nullptr) {
  std::vector<LaneImage> images;
  for (int r = 0; r < verified.schedule().collective.nranks; r++)
    images.push_back(cuda::lane_image(verified, also, r, verified.fifo_depth(), straight));
  return images;
}

// A schedule of a generator whose ranks send messages, or along random trees.
VerifiedSchedule any_messages(Random& random) {
  const int nranks = 2 + static_cast<int>(random.below(6));
  if (random.below(2) == 0) return verify(random_schedule(nranks, random.next()), false, 4);
  for (;;) {
    const Generator& generator = generators()[random.below(generators().size())];
    Collective c{static_cast<CollectiveKind>(random.below(kCollectiveKinds)), nranks, 0};
    if (c.rooted()) c.root = static_cast<int>(random.below(static_cast<uint64_t>(nranks)));
    if (generator.peer_memory || generator.cpu_nodes > 0 || !generator.supports(c)) continue;
    const bool in_place = random.below(2) == 0;
    return verify(generator.make(c, in_place), in_place);
  }
}

// One end of a FIFO, under the name by which the other end must know it.
struct End {
  uint32_t per_iteration = 0;
  std::vector<std::pair<LaneOperand::Kind, int32_t>> messages;  // straight places, in order
  bool operator==(const End&) const = default;
};
using Ends = std::map<std::tuple<int, int, uint32_t, uint32_t>, End>;

// The ends of a rank, by producer, consumer and the positions there. Checks the orders of messages.
void add_ends(const LaneImage& image, bool receives, Ends& ends) {
  for (const LaneImage::Lane& lane : image.lanes) {
    const auto& ports = receives ? lane.receives : lane.sends;
    std::vector<End> here(ports.size());
    for (const LaneStep& step : lane.steps) {
      const uint32_t first = step.first_operand + (receives ? 0 : step.sources);
      for (uint32_t i = 0; i < (receives ? step.sources : step.destinations); i++) {
        const LaneOperand& operand = lane.operands[first + i];
        if (operand.kind != LaneOperand::kMessage) continue;
        ASSERT_LT(operand.port, ports.size());
        auto& messages = here[operand.port].messages;
        EXPECT_EQ(operand.order, messages.size()) << "messages are numbered in the lane's order";
        messages.emplace_back(operand.straight,
                              operand.straight == LaneOperand::kMessage ? 0 : operand.index);
      }
    }
    for (size_t p = 0; p < ports.size(); p++) {
      here[p].per_iteration = ports[p].per_iteration;
      EXPECT_EQ(here[p].messages.size(), ports[p].per_iteration);
      const int producer = receives ? ports[p].peer : image.rank,
                consumer = receives ? image.rank : ports[p].peer;
      const bool is_new =
          ends.try_emplace({producer, consumer, ports[p].position, ports[p].credit_position},
                           here[p])
              .second;
      EXPECT_TRUE(is_new) << "two lanes use one FIFO";
    }
  }
}

// No two FIFOs share a place, neither at the consumer nor at the producer.
void expect_apart(const Ends& ends, uint32_t most_ports) {
  std::set<std::pair<int, uint32_t>> tails, credits;
  for (const auto& [name, end] : ends) {
    const auto& [producer, consumer, position, credit_position] = name;
    EXPECT_TRUE(tails.emplace(consumer, position).second);
    EXPECT_TRUE(credits.emplace(producer, credit_position).second);
    EXPECT_LT(position, most_ports);
    EXPECT_LT(credit_position, most_ports);
  }
}

TEST(LaneImage, BothEndsOfEveryMessageAgree) {
  Random random(mix(test_seed(), 43));
  size_t straight = 0, messages = 0;
  for (int i = 0; i < test_samples(200); i++) {
    const VerifiedSchedule verified = any_messages(random);
    const std::vector<LaneImage> images = images_of(verified);
    Ends received, sent;
    for (const LaneImage& image : images) {
      add_ends(image, true, received);
      add_ends(image, false, sent);
      EXPECT_EQ(image.most_ports, images[0].most_ports);
      EXPECT_EQ(image.most_lanes, images[0].most_lanes);
      EXPECT_EQ(image.most_messages, images[0].most_messages);
      EXPECT_EQ(image.scratch_chunks, images[0].scratch_chunks);
      EXPECT_EQ(image.step_chunks, images[0].step_chunks);
      straight += image.straight_messages;
      messages += image.messages;
    }
    EXPECT_EQ(received, sent);
    EXPECT_EQ(received.size(), verified.graph().fifos.size());
    expect_apart(received, images[0].most_ports);
    for (const auto& [name, end] : received) EXPECT_LE(end.per_iteration, images[0].most_messages);
    ASSERT_FALSE(testing::Test::HasFailure()) << verified.schedule().name;
  }
  EXPECT_GT(straight, 0u);
  EXPECT_LT(straight, messages);
}

// The dependencies of a lane, and the steps of other lanes that some step waits for.
TEST(LaneImage, KeepsDependenciesAndMarksTheStepsThatOthersWaitFor) {
  Random random(mix(test_seed(), 44));
  size_t dependencies = 0;
  for (int i = 0; i < test_samples(100); i++) {
    const VerifiedSchedule verified = any_messages(random);
    for (const LaneImage& image : images_of(verified)) {
      const auto& lanes = verified.schedule().ranks[static_cast<size_t>(image.rank)].lanes;
      ASSERT_EQ(image.lanes.size(), lanes.size());
      std::set<std::pair<uint32_t, uint32_t>> waited_for, counted;
      for (size_t l = 0; l < lanes.size(); l++) {
        const std::vector<Step>& steps = lanes[image.lanes[l].number].steps;
        ASSERT_EQ(image.lanes[l].steps.size(), steps.size());
        for (uint32_t s = 0; s < steps.size(); s++) {
          const LaneStep& step = image.lanes[l].steps[s];
          if (step.counted) counted.emplace(l, s);
          EXPECT_LE(step.dependencies, steps[s].after.size());
          for (uint32_t d = 0; d < step.dependencies; d++) {
            const LaneDependency& on = image.lanes[l].dependencies[step.first_dependency + d];
            waited_for.emplace(on.lane, on.step);
            const uint32_t lane = image.lanes[on.lane].number;
            EXPECT_EQ(on.steps, lanes[lane].steps.size());
            const Dependency asked{static_cast<int32_t>(lane), static_cast<int32_t>(on.step)};
            EXPECT_EQ(std::ranges::count(steps[s].after, asked), 1);
            dependencies++;
          }
        }
      }
      EXPECT_EQ(counted, waited_for);
    }
  }
  EXPECT_GT(dependencies, 0u);
}

TEST(LaneImage, HasTheHeaviestLanesFirst) {
  Random random(mix(test_seed(), 45));
  for (int i = 0; i < test_samples(100); i++) {
    const VerifiedSchedule verified = any_messages(random);
    const std::vector<LaneImage> images = images_of(verified);
    for (const LaneImage& image : images) {
      const std::vector<uint64_t> weights =
          lane_weights(verified.schedule().ranks[static_cast<size_t>(image.rank)]);
      std::set<uint32_t> numbers;
      for (size_t l = 0; l < image.lanes.size(); l++) {
        numbers.insert(image.lanes[l].number);
        if (l > 0) {
          EXPECT_GE(weights[image.lanes[l - 1].number], weights[image.lanes[l].number]);
        }
      }
      EXPECT_EQ(numbers.size(), image.lanes.size());
    }
  }
}

TEST(LaneWeights, CountWhatIsReadAndWritten) {
  const auto weight = [](std::vector<Operand> from, std::vector<Operand> to, int32_t count = 1) {
    RankSchedule rank;
    rank.lanes.push_back({{{std::move(from), std::move(to), count, {}}}});
    return lane_weights(rank).at(0);
  };
  const Operand in = Operand::input(0), out = Operand::output(0), peer = Operand::peer(1);
  EXPECT_EQ(weight({in}, {out}), 2u);
  EXPECT_EQ(weight({in}, {peer, peer, peer}), 4u);
  EXPECT_EQ(weight({peer, in}, {out}), 3u);
  EXPECT_EQ(weight({peer, in}, {out}, 5), 15u);
  EXPECT_EQ(weight({peer}, {out}), 0u) << "it is there already";
  EXPECT_EQ(weight({peer}, {out, peer}), 2u) << "read where it arrived";
  EXPECT_EQ(weight({peer}, {peer}), 2u);
}

// In place or not, and whatever rank asks: all must cut calls alike.
TEST(LaneWeights, AreThoseOfTheRankWithTheHeaviestLane) {
  Schedule schedule;
  const Step light{{Operand::input(0)}, {Operand::peer(1)}, 1, {}},
      heavy{{Operand::input(0)}, {Operand::peer(1)}, 4, {}};
  schedule.ranks.resize(3);
  schedule.ranks[0].lanes = {{{light}}};
  schedule.ranks[1].lanes = {{{light}}, {{heavy, light}}, {{}}};
  schedule.ranks[2].lanes = {{{heavy, heavy, heavy}}};  // a CPU node
  schedule.cpu_nodes = 1;
  EXPECT_EQ(weights_of_heaviest(schedule), (std::vector<uint64_t>{10, 2, 0}));
  schedule.ranks.assign(2, {});
  EXPECT_TRUE(weights_of_heaviest(schedule).empty());
  for (const Generator* generator : {&kRing, &kDirect, &kRecursive, &kTree}) {
    const Collective c{CollectiveKind::kAllReduce, 4, 0};
    EXPECT_EQ(weights_of_heaviest(generator->make(c, false)),
              weights_of_heaviest(generator->make(c, true)))
        << generator->name;
  }
}

TEST(LaneImage, HasNoStraightMessagesUnlessItMay) {
  const VerifiedSchedule verified =
      verify(kRing.make({CollectiveKind::kAllGather, 4, 0}, false), false);
  EXPECT_EQ(images_of(verified)[0].straight_messages, 3u);
  for (const LaneImage& image : images_of(verified, false)) {
    EXPECT_EQ(image.straight_messages, 0u);
    for (const LaneImage::Lane& lane : image.lanes)
      for (const LaneOperand& operand : lane.operands)
        EXPECT_EQ(operand.straight, LaneOperand::kMessage);
  }
}

// Two ranks exchange a chunk. In place, the chunk that arrives replaces the one that is sent: then
// no message is straight. A rank that knows of both proofs uses what both allow.
TEST(LaneImage, MessagesAreStraightIfBothProofsAllowIt) {
  Schedule s = blank("exchange", {CollectiveKind::kAllToAll, 2, 0}, 1, 1);
  for (int r = 0; r < 2; r++) {
    Lane& lane = s.ranks[static_cast<size_t>(r)].lanes[0];
    add(lane, {Operand::input(1 - r)}, {Operand::peer(1 - r)});
    add(lane, {Operand::peer(1 - r)}, {Operand::output(1 - r)});
    add(lane, {Operand::input(r)}, {Operand::output(r)});
  }
  const VerifiedSchedule apart = verify(s, false), aliased = verify(s, true);
  for (size_t r = 0; r < 2; r++) {
    EXPECT_EQ(images_of(apart)[r].straight_messages, 1u);
    EXPECT_EQ(images_of(apart, true, &apart)[r].straight_messages, 1u);
    EXPECT_EQ(images_of(aliased)[r].straight_messages, 0u);
    EXPECT_EQ(images_of(apart, true, &aliased)[r].straight_messages, 0u);
    EXPECT_EQ(images_of(aliased, true, &apart)[r].straight_messages, 0u);
  }
}

// Slots are as large as the largest message of any rank.
TEST(LaneImage, KnowsWhetherAllMessagesAreCoded) {
  const auto all_coded = [](const std::vector<int>& hosts, const char* codec) {
    const Collective c{CollectiveKind::kAllReduce, static_cast<int>(hosts.size()), 0};
    const std::vector<LaneImage> images =
        images_of(verify(make_coded(c, hosts, parse_codec_spec(codec)), false));
    for (const LaneImage& image : images) EXPECT_EQ(image.all_coded, images[0].all_coded);
    return images[0].all_coded;
  };
  EXPECT_TRUE(all_coded({0, 1, 2}, "int8"));
  EXPECT_FALSE(all_coded({0, 1, 1}, "int8")) << "neighbours send plain data";
  EXPECT_FALSE(all_coded({0, 1, 2}, "widen")) << "results are plain";
  for (const LaneImage& image :
       images_of(verify(kRing.make({CollectiveKind::kAllReduce, 3, 0}, false), false)))
    EXPECT_FALSE(image.all_coded);
}

TEST(LaneImage, RefusesStepsInPeerMemory) {
  const VerifiedSchedule verified =
      verify(kPeerMemory.make({CollectiveKind::kAllReduce, 2, 0}, false), false);
  try {
    images_of(verified);
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a step accesses the memory of rank 1 without messages");
  }
}

}  // namespace
}  // namespace weft::test
