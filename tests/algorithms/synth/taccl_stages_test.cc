// The stages of TACCL's pipeline, each by itself.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "algorithms/catalogue/catalogue.h"
#include "algorithms/synth/taccl/contiguity.h"
#include "algorithms/synth/taccl/greedy.h"
#include "algorithms/synth/taccl/ordering.h"
#include "algorithms/synth/taccl/routing.h"
#include "src/base/error.h"
#include "tests/algorithms/synth/cbc.h"
#include "tests/algorithms/synth/sketches.h"

namespace weft::test {
namespace {

TacclProblem problem(const char* topo, const char* json, CollectiveKind kind, double chunk = 65536,
                     double message_us = 0) {
  const Machine machine = load_machine(topo);
  const Sketch s = sketch(json);
  return taccl_problem({kind, static_cast<int>(gpus(machine).size()), 0}, s.chunks,
                       logical_topology(machine, s, chunk, message_us));
}

// Every piece reaches every rank that wants it, once per rank, over links that it may use.
void expect_trees(const TacclProblem& p, const TacclRoutes& routes) {
  ASSERT_EQ(routes.size(), p.pieces.size());
  for (size_t i = 0; i < routes.size(); i++) {
    std::set<int> has{p.pieces[i].source};
    for (const int32_t l : routes[i]) {
      const LogicalLink& link = p.topology.links[static_cast<size_t>(l)];
      EXPECT_TRUE(p.candidate(static_cast<int32_t>(i), l));
      EXPECT_TRUE(has.count(link.from)) << "piece " << i << " leaves " << link.from;
      EXPECT_TRUE(has.insert(link.to).second) << "piece " << i << " comes twice to " << link.to;
    }
    for (const int r : p.pieces[i].wanted)
      EXPECT_TRUE(has.count(r)) << "piece " << i << " to " << r;
  }
}

void expect_alike(const TacclProblem& p, const TacclRoutes& routes) {
  for (const TacclSymmetry& s : p.symmetries)
    for (size_t i = 0; i < routes.size(); i++) {
      std::set<int32_t> image;
      for (const int32_t l : routes[i]) image.insert(s.link[static_cast<size_t>(l)]);
      const auto& other = routes[static_cast<size_t>(s.piece[i])];
      EXPECT_EQ(image, std::set<int32_t>(other.begin(), other.end()));
    }
}

TEST(TacclProblems, HaveOneLeaderForAllPiecesThatAreAlike) {
  const TacclProblem p = problem("dgx2-tecclx2", kDgx2Sketch, CollectiveKind::kAllGather);
  EXPECT_EQ(p.pieces.size(), 64u);
  EXPECT_EQ(p.symmetries.size(), 16u);  // eight rotations of the switch, two hosts
  EXPECT_EQ(p.leaders.size(), 4u);
  EXPECT_EQ(problem("ndv2x2", kNdv2Sketch, CollectiveKind::kAllToAll).leaders.size(), 120u);
  // The root differs from all other ranks.
  EXPECT_EQ(problem("ndv2x2", kNdv2Sketch, CollectiveKind::kBroadcast).symmetries.size(), 1u);
}

TEST(TacclProblems, LetPiecesCrossOnlyWhereTheSketchWants) {
  const TacclProblem p = problem("dgx2-tecclx2", kDgx2Sketch, CollectiveKind::kAllGather);
  for (size_t i = 0; i < p.pieces.size(); i++)
    for (size_t l = 0; l < p.topology.links.size(); l++) {
      const LogicalLink& link = p.topology.links[l];
      if (!link.remote || !p.candidate(static_cast<int32_t>(i), static_cast<int32_t>(l))) continue;
      EXPECT_EQ(link.from, p.pieces[i].source / 2 * 2 + 1);  // the odd one of the pair
    }
}

TEST(TacclProblems, SayWhichRankCannotBeReached) {
  const char* lonely = R"({"nnodes": 1, "intranode_sketch": {"strategy": "switch",
    "switches": [[0,1,2,3],[4,5,6,7]], "switch_hyperedge_strategy": ["uc-min", "uc-min"]},
    "symmetry_offsets": [], "hyperparameters": {"input_chunkup": 1}})";
  try {
    problem("dgx-h100", lonely, CollectiveKind::kAllGather);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "sketch: the sketch leaves no way from rank 0 to rank 4");
  }
}

TEST(GreedyRoutes, AreTreesThatKeepToTheSketchAndItsSymmetry) {
  for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kAllToAll,
                                    CollectiveKind::kBroadcast, CollectiveKind::kScatter})
    for (const auto& [topo, json] :
         {std::pair("ndv2x2", kNdv2Sketch), std::pair("dgx2-tecclx2", kDgx2Sketch)}) {
      if (kind == CollectiveKind::kAllToAll && json == kDgx2Sketch) continue;  // as many as 2,000
      const TacclProblem p = problem(topo, json, kind);
      for (const double part : {1.0, 0.125}) {
        const TacclRoutes routes = greedy_routes(p, part);
        expect_trees(p, routes);
        expect_alike(p, routes);
      }
    }
}

TEST(GreedyRoutes, SpreadTheLoadOfASwitch) {
  // Each wanted block arrives once: 31 blocks at odd GPUs. No GPU needs to send more.
  const TacclProblem p = problem("dgx2-tecclx2", kDgx2Sketch, CollectiveKind::kAllGather, 1 << 24);
  std::vector<double> load(p.topology.resources.size(), 0.0);
  const TacclRoutes routes = greedy_routes(p, 0.125);
  for (const auto& links : routes)
    for (const int32_t l : links)
      for (const int32_t r : p.topology.links[static_cast<size_t>(l)].resources)
        load[static_cast<size_t>(r)] += p.topology.resources[static_cast<size_t>(r)].beta_us;
  const double block = 2 * (1 << 24) * 1e-3 / 125;
  EXPECT_LE(*std::max_element(load.begin(), load.end()), 31.5 * block);
}

TEST(RoutingModels, TakeTheHeuristicAsASolutionWithItsTime) {
  for (const auto& [topo, json] :
       {std::pair("ndv2x2", kNdv2Sketch), std::pair("dgx2-tecclx2", kDgx2Sketch),
        std::pair("dgx1v", kOneHostSketch)})
    for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kBroadcast}) {
      const TacclProblem p = problem(topo, json, kind);
      const TacclRoutes routes = greedy_routes(p);
      const RoutingModel model = routing_model(p, routes);
      EXPECT_EQ(model.linear.broken(model.start), "") << topo;
      const TacclRoutes back = routes_of(p, model, model.start);
      expect_trees(p, back);
      for (size_t i = 0; i < routes.size(); i++)
        EXPECT_EQ(std::set<int32_t>(back[i].begin(), back[i].end()),
                  std::set<int32_t>(routes[i].begin(), routes[i].end()));
    }
}

TEST(RoutingModels, RefuseSolutionsThatSkipSomebodyOrAreTooFast) {
  const TacclProblem p = problem("ndv2x2", kNdv2Sketch, CollectiveKind::kAllGather);
  const TacclRoutes routes = greedy_routes(p);
  const RoutingModel model = routing_model(p, routes);
  std::vector<double> skips = model.start, fast = model.start;
  skips[static_cast<size_t>(model.sent[0][static_cast<size_t>(routes[0].back())])] = 0;
  EXPECT_NE(model.linear.broken(skips), "");
  // The NIC must carry eight chunks.
  fast[static_cast<size_t>(model.time_us)] = 8 * 65536 * 1e-3 / 12.5 * 0.999;
  EXPECT_NE(model.linear.broken(fast), "");
}

TEST(RoutingModels, ShrinkWithSymmetry) {
  const TacclProblem with = problem("ndv2x2", kNdv2Sketch, CollectiveKind::kAllGather);
  const std::string none = replaced(kNdv2Sketch, "[[8, 16]]", "[]");
  const TacclProblem without = problem("ndv2x2", none.c_str(), CollectiveKind::kAllGather);
  const auto columns = [](const TacclProblem& p) {
    return routing_model(p, greedy_routes(p)).linear.columns();
  };
  EXPECT_EQ(2 * (columns(with) - 1), columns(without) - 1);
}

TEST(RoutingModels, CountLinksForUcMinAndUcMax) {
  const std::string many = replaced(kDgx2Sketch, "uc-min", "uc-max");
  const TacclProblem few = problem("dgx2-tecclx2", kDgx2Sketch, CollectiveKind::kAllGather);
  const TacclProblem most = problem("dgx2-tecclx2", many.c_str(), CollectiveKind::kAllGather);
  const auto wish = [](const TacclProblem& p) {
    const RoutingModel m = routing_model(p, greedy_routes(p));
    EXPECT_EQ(m.linear.broken(m.start), "");
    return m.linear.objective(m.start) - m.start[static_cast<size_t>(m.time_us)];
  };
  EXPECT_GT(wish(few), 0);
  EXPECT_NEAR(wish(most), -wish(few), 1e-9);
}

class Orders : public testing::TestWithParam<OrderRule> {};

TEST_P(Orders, KeepPiecesAndSharedThingsOneAfterTheOther) {
  const TacclProblem p = problem("dgx2-tecclx2", kDgx2Sketch, CollectiveKind::kAllGather);
  const TacclOrder order = order_sends(p, greedy_routes(p), 3, GetParam());
  EXPECT_EQ(order.sends.size(), 64u * 31 * 3);
  std::vector<double> free(p.topology.resources.size(), 0.0);
  std::map<int32_t, bool> relays;
  for (size_t s = 0; s < order.sends.size(); s++) {
    const TacclSend& send = order.sends[s];
    const LogicalLink& link = p.topology.links[static_cast<size_t>(send.link)];
    if (send.parent >= 0) {
      const auto parent = static_cast<size_t>(send.parent);
      ASSERT_LT(parent, s);
      const LogicalLink& before = p.topology.links[static_cast<size_t>(order.sends[parent].link)];
      EXPECT_EQ(before.to, link.from);
      EXPECT_EQ(order.sends[parent].piece, send.piece);
      EXPECT_EQ(order.sends[parent].part, send.part);
      EXPECT_GE(order.begin_us[s],
                order.begin_us[parent] + before.alpha_us + before.beta_us / 3 - 1e-9);
    }
    for (const int32_t r : link.resources) {
      EXPECT_GE(order.begin_us[s], free[static_cast<size_t>(r)] - 1e-9);
      free[static_cast<size_t>(r)] =
          order.begin_us[s] + p.topology.resources[static_cast<size_t>(r)].beta_us / 3;
    }
    // enforce_ordering: a sender sends its own pieces first.
    if (link.remote) {
      EXPECT_FALSE(send.parent < 0 && relays[send.link]);
      relays[send.link] = relays[send.link] || send.parent >= 0;
    }
  }
  const ExactTimes times = exact_times(p, order, Together(order.sends.size(), 0));
  EXPECT_TRUE(times.possible);
  EXPECT_NEAR(times.time_us, order.time_us, 1e-9);
}

INSTANTIATE_TEST_SUITE_P(Rule, Orders,
                         testing::Values(OrderRule::kLongestPathFromNow,
                                         OrderRule::kShortestPathUntilNow, OrderRule::kEarliest));

TEST(Ordering, PutsWhatHasFarthestToGoFirst) {
  // Host 0's GPU 3 must send its piece to the sending GPU before it sends it to others.
  const TacclProblem p = problem("ndv2x2", kNdv2Sketch, CollectiveKind::kAllGather);
  const TacclOrder order = order_sends(p, greedy_routes(p), 1, OrderRule::kLongestPathFromNow);
  for (const TacclSend& send : order.sends) {
    const LogicalLink& link = p.topology.links[static_cast<size_t>(send.link)];
    if (p.pieces[static_cast<size_t>(send.piece)].source != 3 || send.parent >= 0) continue;
    EXPECT_EQ(link.to, 0);
    break;
  }
}

// Chunks that cross together save a message. Here a message costs as much as 4 chunks.
TacclProblem costly() {
  return problem("ndv2x2", kNdv2Sketch, CollectiveKind::kAllGather, 4096, 4096 * 4e-3 / 12.5);
}

TEST(Contiguity, IsNoQuestionWhereMessagesCostNothing) {
  const TacclProblem p = problem("ndv2x2", kNdv2Sketch, CollectiveKind::kAllGather);
  const TacclOrder order = order_sends(p, greedy_routes(p), 2, OrderRule::kEarliest);
  EXPECT_TRUE(joinable(p, order).empty());
}

TEST(Contiguity, JoinsWhereThatIsFasterAndNeverTooMany) {
  const TacclProblem p = costly();
  const TacclOrder order = order_sends(p, greedy_routes(p), 2, OrderRule::kEarliest);
  const Together together = join_greedily(p, order);
  const ExactTimes times = exact_times(p, order, together);
  EXPECT_TRUE(times.possible);
  EXPECT_LT(times.time_us, order.time_us * 0.9);
  std::map<int32_t, int> run;
  for (size_t s = 0; s < order.sends.size(); s++) {
    int& length = run[order.sends[s].link];
    length = together[s] != 0 ? length + 1 : 1;
    EXPECT_LE(length, kMostTogether);
  }
}

TEST(Contiguity, KnowsWhatWouldWaitForItself) {
  // A chunk cannot leave together with another chunk that comes back because of the first.
  TacclProblem p;
  p.topology = logical_topology(load_machine("ndv2x2"), sketch(kNdv2Sketch), 4096, 1);
  TacclOrder order;
  const auto send = [&](int from, int to, int32_t parent) {
    order.sends.push_back({0, 0, p.topology.link(from, to), parent});
  };
  send(0, 9, -1);  // crosses
  send(8, 1, 0);   // as if the first send had caused it
  send(1, 0, 1);
  send(0, 9, 2);
  EXPECT_TRUE(exact_times(p, order, {0, 0, 0, 0}).possible);
  EXPECT_FALSE(exact_times(p, order, {0, 0, 0, 1}).possible);
}

TEST(ContiguityModels, TakeTheHeuristicAsASolutionWithItsTime) {
  const TacclProblem p = costly();
  for (const int parts : {1, 4}) {
    const TacclOrder order = order_sends(p, greedy_routes(p), parts, OrderRule::kEarliest);
    for (const Together& together : {Together(order.sends.size(), 0), join_greedily(p, order)}) {
      const ContiguityModel model = contiguity_model(p, order, together);
      EXPECT_EQ(model.linear.broken(model.start), "");
      EXPECT_NEAR(model.linear.objective(model.start), exact_times(p, order, together).time_us,
                  1e-9);
      EXPECT_EQ(together_of(p, order, model, model.start), together);
      std::vector<double> fast = model.start;
      fast[0] *= 0.99;  // the time
      EXPECT_NE(model.linear.broken(fast), "");
    }
  }
}

#if WEFT_HAVE_CBC
TEST(RoutingModels, AreSolvedToKnownOptima) {
  // One chunk per GPU on a DGX-1. Six chunks arrive in the time of two on a double link. The
  // seventh takes half of that time more.
  const TacclProblem p = problem("dgx1v", kOneHostSketch, CollectiveKind::kAllGather, 1e6);
  TacclRoutes bad(p.pieces.size());
  // A bad start: everything goes along one breadth-first tree by rank.
  for (size_t i = 0; i < bad.size(); i++) {
    std::vector<int> reached{p.pieces[i].source};
    for (size_t k = 0; k < reached.size(); k++)
      for (const int32_t l : p.topology.leaving[static_cast<size_t>(reached[k])])
        if (const int to = p.topology.links[static_cast<size_t>(l)].to;
            std::find(reached.begin(), reached.end(), to) == reached.end()) {
          reached.push_back(to);
          bad[i].push_back(l);
        }
  }
  const RoutingModel model = routing_model(p, bad, 0.01);
  const auto solution = cbc()->improve(model.linear, model.start, 60);
  EXPECT_TRUE(solution.improved) << solution.note;
  EXPECT_NEAR(solution.values[static_cast<size_t>(model.time_us)], 60, 0.1);  // 3 chunks at 50 GB/s
  EXPECT_GT(model.start[static_cast<size_t>(model.time_us)], 79);
  expect_trees(p, routes_of(p, model, solution.values));
}

TEST(ContiguityModels, AreNeverWorseThanTheHeuristic) {
  const TacclProblem p = costly();
  const TacclOrder order = order_sends(p, greedy_routes(p), 1, OrderRule::kEarliest);
  const Together greedy = join_greedily(p, order);
  const ContiguityModel model = contiguity_model(p, order, greedy);
  const auto solution = cbc()->improve(model.linear, model.start, 10);
  const ExactTimes times = exact_times(p, order, together_of(p, order, model, solution.values));
  EXPECT_TRUE(times.possible);
  EXPECT_LE(times.time_us, exact_times(p, order, greedy).time_us + 1e-6);
  EXPECT_NEAR(times.time_us, solution.objective, 1e-4 * times.time_us);
  // From the worst start the solver must do at least as well as the heuristic.
  const ContiguityModel apart = contiguity_model(p, order, Together(order.sends.size(), 0));
  EXPECT_LE(cbc()->improve(apart.linear, apart.start, 10).objective,
            exact_times(p, order, greedy).time_us * 1.001);
}
#endif

}  // namespace
}  // namespace weft::test
