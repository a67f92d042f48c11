// Steps, rounds and chunks: the trade-off between latency and bandwidth.
#include "algorithms/synth/latency/points.h"

#include <gtest/gtest.h>

#include <map>

#include "algorithms/catalogue/catalogue.h"
#include "algorithms/synth/latency/steps.h"
#include "algorithms/synth/weave/weave.h"
#include "src/base/error.h"
#include "src/schedule/verify.h"
#include "tests/algorithms/synth/transfer_checks.h"
#include "tests/simulator/machines.h"

namespace weft::test {
namespace {

// The definition of k-synchronous. No rank passes a piece on in the step that brought it. The
// rounds can be divided among the steps so that every link has room for its load.
void expect_synchronous(const Machine& machine, const ParetoPoint& point, double unit_gbps) {
  EXPECT_EQ(transfer_error(machine, point.routing), "");
  std::map<std::pair<int, int>, double> brought;  // piece, rank: step
  std::map<std::pair<int, int>, int> carried;     // step, link
  for (const Transfer& t : point.routing.transfers) brought[{t.piece, t.to}] = t.begin_us;
  std::map<int, int> rounds;
  for (const Transfer& t : point.routing.transfers) {
    const auto source = brought.find({t.piece, t.from});
    EXPECT_TRUE(source == brought.end() || source->second < t.begin_us);
    const int step = static_cast<int>(t.begin_us);
    EXPECT_LT(step, point.steps);
    ASSERT_EQ(t.links.size(), 1u);
    const int width = static_cast<int>(machine.links[t.links[0]].gbps / unit_gbps);
    const int used = ++carried[{step, t.links[0]}];
    rounds[step] = std::max(rounds[step], (used + width - 1) / width);
  }
  int total = 0;
  for (const auto& [step, count] : rounds) total += count;
  EXPECT_LE(total, point.rounds);
}

TEST(ParetoPoints, OfAllGatherOnADgx1AreThoseOfSccl) {
  const Machine m = load_machine("dgx1v");
  const auto points = latency_points(m, {CollectiveKind::kAllGather, 8});
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(std::tuple(points[0].steps, points[0].rounds, points[0].chunks), std::tuple(2, 3, 2));
  EXPECT_EQ(std::tuple(points[1].steps, points[1].rounds, points[1].chunks), std::tuple(3, 7, 6));
  for (const ParetoPoint& point : points) expect_synchronous(m, point, 25);
}

TEST(ParetoPoints, BecomeSchedules) {
  const Machine m = load_machine("dgx1v");
  for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
                                    CollectiveKind::kBroadcast, CollectiveKind::kReduce}) {
    const auto points = latency_points(m, {kind, 8, 3});
    ASSERT_FALSE(points.empty()) << name(kind);
    for (const ParetoPoint& point : points)
      EXPECT_NO_THROW(verify(weave(point.routing), false, kWovenFifoDepth)) << name(kind);
  }
}

TEST(ParetoPoints, OfACircleAreItsDiameterAndItsBandwidth) {
  // Data goes both ways round: at least 2 steps. 4 blocks over two links take 2 rounds each.
  const auto points = latency_points(circle(5, 10, 1), {CollectiveKind::kAllGather, 5});
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].steps, 2);
  EXPECT_EQ(points[0].rounds, 2 * points[0].chunks);
}

TEST(ParetoPoints, AreNotFoundWhereThereAreNone) {
  const Machine m = load_machine("dgx1v");
  const HopGraph graph = hop_graph(m, 8);
  std::vector<int> width;
  for (const Hop& hop : graph.hops) width.push_back(hop.gbps > 30 ? 2 : 1);
  std::vector<int32_t> origin;
  for (int p = 0; p < 24; p++) origin.push_back(p / 3);
  // A solver has shown that this is unsatisfiable.
  EXPECT_FALSE(find_steps({graph, width, origin}, 2, 4));
}

TEST(ParetoPoints, NeedLinksOfTheirOwn) {
  try {
    latency_points(load_machine("dgx-h100"), {CollectiveKind::kAllGather, 8});
    FAIL() << "a switch was taken for links";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "dgx-h100: steps and rounds need links of their own between GPUs, but several "
                 "ways share g0->nvs");
  }
}

}  // namespace
}  // namespace weft::test
