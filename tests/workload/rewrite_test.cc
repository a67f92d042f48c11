// Rewritings, and that the check of them finds what is wrong.
#include "src/workload/rewrite.h"

#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/workload/check.h"
#include "src/workload/token_slices.h"
#include "tests/workload/graphs.h"

namespace weft::workload {
namespace {

Graph layer() {
  return graph_with(4, R"({"id": "f", "us": 100, "axis": "tokens"},
{"id": "r", "collective": "all_reduce", "bytes": 8000, "group": "all", "after": ["f"], "axis": "tokens"},
{"id": "n", "us": 50, "after": ["r"], "axis": "tokens"},
{"id": "w", "us": 30, "after": ["f"]})");
}

Cutting cuts_of(const Graph& graph, std::initializer_list<const char*> ops, int parts) {
  Cutting cutting;
  cutting.cuts.resize(graph.ops.size());
  for (const char* op : ops)
    cutting.cuts[static_cast<size_t>(op_named(graph, op))] = equal_cuts(parts);
  return cutting;
}

TEST(Rewriting, PartsOfOneAxisWaitPartByPart) {
  const Graph before = layer();
  const Graph after = cut(before, cuts_of(before, {"f", "r", "n"}, 2));
  check_rewritten(before, after);
  ASSERT_EQ(after.ops.size(), 7u);
  const Op& second = after.ops[static_cast<size_t>(op_named(after, "r/1"))];
  EXPECT_EQ(second.after, std::vector<int>{op_named(after, "f/1")});
  EXPECT_DOUBLE_EQ(second.bytes, 4000);
  EXPECT_EQ(second.parts, 2);
  // w has no axis: it waits for all of f.
  EXPECT_EQ(after.ops[static_cast<size_t>(op_named(after, "w"))].after.size(), 2u);
}

TEST(Rewriting, CutsMayBeCutAgain) {
  const Graph before = layer();
  const Graph once = cut(before, cuts_of(before, {"f"}, 2));
  const Graph twice = cut(once, cuts_of(once, {"f/0", "r", "n"}, 2));
  check_rewritten(before, twice);
  // The first half of r waits for both quarters of f's first half, and not for its second half.
  EXPECT_EQ(twice.ops[static_cast<size_t>(op_named(twice, "r/0"))].after,
            (std::vector<int>{op_named(twice, "f/0/0"), op_named(twice, "f/0/1")}));
}

TEST(Rewriting, SubstitutionsCompose) {
  Graph graph = layer();
  const int r = op_named(graph, "r"), group = graph.ops[static_cast<size_t>(r)].group;
  using Kind = CollectiveKind;
  check_rewritten(
      graph,
      substitute(graph, {{r, {{Kind::kReduceScatter, 1, group}, {Kind::kAllGather, 1, group}}}}));
  const HostGrid grid = host_grid({{0, 1, 2, 3}}, {0, 0, 1, 1});
  EXPECT_EQ(grid.inside, (Instances{{0, 1}, {2, 3}}));
  EXPECT_EQ(grid.across, (Instances{{0, 2}, {1, 3}}));
  Graph grown = graph;
  const int inside = group_of(grown, "in", grid.inside), across = group_of(grown, "x", grid.across);
  const Graph split = substitute(grown, {{r,
                                          {{Kind::kReduceScatter, 1, inside},
                                           {Kind::kAllReduce, 0.5, across},
                                           {Kind::kAllGather, 1, inside}}}});
  check_rewritten(graph, split);
  EXPECT_EQ(split.ops[static_cast<size_t>(op_named(split, "n"))].after,
            std::vector<int>{op_named(split, "r:2")});
  EXPECT_TRUE(host_grid({{0, 1, 2}}, {0, 0, 1}).inside.empty());  // hosts differ
}

TEST(Rewriting, MergedCollectivesKeepTheirBytes) {
  const Graph before = graph_with(2, R"({"id": "a", "us": 1},
{"id": "ga", "collective": "all_reduce", "bytes": 100, "group": "all", "after": ["a"], "phase": "grad"},
{"id": "b", "us": 1},
{"id": "gb", "collective": "all_reduce", "bytes": 200, "group": "all", "after": ["b"], "phase": "grad"},
{"id": "o", "us": 1, "after": ["ga", "gb"]})");
  const Graph after = merge(before, {{1, 3}});
  check_rewritten(before, after);
  ASSERT_EQ(after.ops.size(), 4u);
  EXPECT_DOUBLE_EQ(after.ops[static_cast<size_t>(op_named(after, "gb"))].bytes, 300);
}

// Each breaks a good rewriting in one way.
TEST(Rewriting, TheCheckFindsWhatIsWrong) {
  const Graph before = layer();
  const Graph good = cut(before, cuts_of(before, {"f", "r", "n"}, 2));
  const auto broken = [&](const std::function<void(Graph&)>& change) {
    Graph bad = good;
    change(bad);
    EXPECT_THROW(check_rewritten(before, bad), Error);
  };
  const auto op = [](Graph& graph, const char* id) -> Op& {
    return graph.ops[static_cast<size_t>(op_named(graph, id))];
  };
  broken([&](Graph& g) { op(g, "r/1").bytes = 3000; });                  // bytes lost
  broken([&](Graph& g) { op(g, "r/1").bytes = 9000; });                  // bytes from nowhere
  broken([&](Graph& g) { op(g, "f/0").us = 1; });                        // compute lost
  broken([&](Graph& g) { op(g, "r/1").after.clear(); });                 // a dependency lost
  broken([&](Graph& g) { op(g, "n/0").after = {op_named(g, "r/1")}; });  // the wrong part
  broken([&](Graph& g) { op(g, "r/0").collective = CollectiveKind::kAllGather; });
  broken([&](Graph& g) { op(g, "r/1").part = 0; });              // two first parts of a call
  broken([&](Graph& g) { op(g, "w").shares.clear(); });          // an operation lost
  broken([&](Graph& g) { op(g, "n/1").shares[0].low = 0.75; });  // a hole
  broken([&](Graph& g) { op(g, "f/0").after = {op_named(g, "n/1")}; });  // a circle
  broken([&](Graph& g) {  // a piece that stands twice
    g.ops.push_back(op(g, "w"));
    g.ops.back().id = "w again";
  });
}

TEST(Rewriting, StagesOfACollectiveWaitForEachOther) {
  const Graph before = layer();
  const int r = op_named(before, "r"), group = before.ops[static_cast<size_t>(r)].group;
  Graph after = substitute(
      before,
      {{r, {{CollectiveKind::kReduceScatter, 1, group}, {CollectiveKind::kAllGather, 1, group}}}});
  check_rewritten(before, after);
  after.ops[static_cast<size_t>(op_named(after, "r:1"))].after.clear();
  EXPECT_THROW(check_rewritten(before, after), Error);
}

TEST(Rewriting, CollectivesOfNoBytesMayBeSplitByHosts) {
  Graph graph =
      graph_with(4, R"({"id": "r", "collective": "all_reduce", "bytes": 0, "group": "all"})");
  const HostGrid grid = host_grid({{0, 1, 2, 3}}, {0, 0, 1, 1});
  Graph grown = graph;
  const int inside = group_of(grown, "in", grid.inside), across = group_of(grown, "x", grid.across);
  Graph split = substitute(grown, {{0,
                                    {{CollectiveKind::kReduceScatter, 1, inside},
                                     {CollectiveKind::kAllReduce, 0.5, across},
                                     {CollectiveKind::kAllGather, 1, inside}}}});
  check_rewritten(graph, split);
  split.ops[1].bytes = 100;  // from nowhere
  EXPECT_THROW(check_rewritten(graph, split), Error);
}

TEST(Rewriting, HoistedCollectivesComeAfterWhatTheyWaitFor) {
  const Graph before = graph_with(2, R"({"id": "a", "us": 1},
{"id": "b", "us": 1},
{"id": "g", "collective": "all_reduce", "bytes": 100, "group": "all", "after": ["a"], "phase": "grad", "stream": "compute"})");
  const Graph after = hoist(
      before, [](const Op& op) { return op.phase == Phase::kGradient; }, "s", 3);
  check_rewritten(before, after);
  EXPECT_EQ(op_named(after, "g"), 1);
  EXPECT_EQ(after.ops[1].stream, "s");
  EXPECT_EQ(after.ops[1].priority, 3);
}

TEST(TokenSlices, DynamicProgrammingFindsTheBestOfAll) {
  // All 2^7 ways to cut eight grains, for several shapes of time.
  for (const double floor : {0.5, 1.5, 3.0})
    for (const int stages : {1, 3, 20}) {
      const auto time = [&](double low, double high) {
        return std::max(floor, 8 * (high - low) + 4 * (high * high - low * low));
      };
      const auto total = [&](const std::vector<double>& cuts) {
        double sum = 0, longest = 0, low = 0;
        std::vector<double> ends = cuts;
        ends.push_back(1);
        for (const double high : ends) {
          sum += time(low, high);
          longest = std::max(longest, time(low, high));
          low = high;
        }
        return sum * 2 + (stages - 1) * longest;
      };
      double best = 1e300;
      for (int mask = 0; mask < 128; mask++) {
        std::vector<double> cuts;
        for (int i = 0; i < 7; i++)
          if ((mask >> i & 1) != 0) cuts.push_back((i + 1) / 8.0);
        best = std::min(best, total(cuts));
      }
      EXPECT_NEAR(total(best_slices(8, stages, 2, time)), best, 0.011 * best);
    }
}

}  // namespace
}  // namespace weft::workload
