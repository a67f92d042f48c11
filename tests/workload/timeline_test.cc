// Costs of collectives and timelines, on machines whose answers are known.
#include "src/workload/timeline.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "algorithms/catalogue/catalogue.h"
#include "src/base/error.h"
#include "src/workload/link_sharing.h"
#include "src/workload/timeline_views.h"
#include "tests/workload/graphs.h"

namespace weft::workload {
namespace {

struct OnA100 : testing::Test {
  const Machine machine = load_machine("dgx-a100x2");
  CommCosts costs{machine};
};

TEST_F(OnA100, InstancesOnDifferentLinksDoNotSlowEachOther) {
  const double one = costs.cost(CollectiveKind::kAllReduce, 1 << 26, {{0, 8}}).us;
  const CommCost& eight = costs.cost(CollectiveKind::kAllReduce, 1 << 26,
                                     {{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}});
  EXPECT_NEAR(eight.us, one, one * 1e-9);  // a NIC each
  // All ring neighbours of two groups cross the same NICs.
  const CommCost& shared = costs.cost(CollectiveKind::kSendRecv, 1 << 26, {{0, 8}});
  for (const LinkLoad& load : shared.loads) EXPECT_LE(load.share, 1 + 1e-9);
  EXPECT_GT(shared.us, (1 << 26) / 25e3);
}

TEST_F(OnA100, PartsThatLookAlikeShareASimulation) {
  (void)costs.cost(CollectiveKind::kAllReduce, 1 << 20, {{0, 1, 2, 3}});
  const int before = costs.simulations();
  (void)costs.cost(CollectiveKind::kAllReduce, 1 << 20, {{8, 9, 10, 11}});
  EXPECT_EQ(costs.simulations(), before);
  (void)costs.cost(CollectiveKind::kAllReduce, 1 << 20, {{0, 1, 8, 9}});
  EXPECT_GT(costs.simulations(), before);
}

TEST_F(OnA100, RanksThatTheMachineLacksAreRefused) {
  EXPECT_THROW((void)costs.cost(CollectiveKind::kAllReduce, 1024, {{0, 16}}), Error);
}

TEST_F(OnA100, WhatIsNotHiddenIsExposed) {
  const std::string ops = R"({"id": "a", "us": 1000, "phase": "dX"},
{"id": "b", "us": 500, "phase": "dX", "after": ["a"]},
{"id": "g", "collective": "all_reduce", "bytes": 67108864, "group": "all", "after": ["a"]},
{"id": "o", "us": 10, "after": ["g", "b"]})";
  const Graph graph = graph_with(16, ops);
  const double comm =
      costs.cost(CollectiveKind::kAllReduce, 67108864, graph.groups[0].instances).us;
  ASSERT_GT(comm, 500);
  const Timeline line = run(graph, costs);
  EXPECT_NEAR(line.us, 1000 + comm + 10, 1e-6);
  EXPECT_NEAR(line.exposed_us, comm - 500, 1e-6);
  EXPECT_NEAR(line.compute_us, 1510, 1e-6);
  EXPECT_NEAR(line.exposed_by_kind.at(CollectiveKind::kAllReduce), comm - 500, 1e-6);
  ASSERT_EQ(line.critical.size(), 3u);
  EXPECT_EQ(graph.ops[static_cast<size_t>(line.spans[static_cast<size_t>(line.critical[1])].op)].id,
            "g");
}

TEST_F(OnA100, CollectivesOnTheSameLinksShareThem) {
  const char* alone =
      R"({"id": "x", "collective": "send_recv", "bytes": 100000000, "group": "p", "stream": "1"})";
  const char* both =
      R"({"id": "x", "collective": "send_recv", "bytes": 100000000, "group": "p", "stream": "1"},
{"id": "y", "collective": "send_recv", "bytes": 100000000, "group": "p", "stream": "2", "priority": %d})";
  const auto file = [](std::string ops) {
    return "{\"ranks\": 16, \"groups\": {\"p\": [0, 8]}, \"ops\": [\n" + ops + "]}";
  };
  const auto with_priority = [&](const char* priority) {
    std::string text = both;
    text.replace(text.find("%d"), 2, priority);
    return graph_from_json(file(text), "w");
  };
  const double one = run(graph_from_json(file(alone), "w"), costs).us;
  const Timeline fair = run(with_priority("0"), costs);
  EXPECT_NEAR(fair.us, 2 * one, 0.02 * one);
  EXPECT_NEAR(fair.spans[0].end_us, fair.spans[1].end_us, 0.02 * one);
  const Timeline urgent = run(with_priority("1"), costs);
  EXPECT_NEAR(urgent.us, 2 * one, 0.02 * one);
  EXPECT_NEAR(urgent.spans[1].end_us, one, 0.02 * one);  // y is as fast as alone
}

TEST_F(OnA100, CommunicationTakesMultiprocessorsFromCompute) {
  const std::string ops = R"({"id": "c", "us": 1000},
{"id": "g", "collective": "all_reduce", "bytes": 1000000000, "group": "all"})";
  EXPECT_NEAR(run(graph_with(16, ops), costs).spans[0].end_us, 1000, 1e-6);
  const Timeline slowed = run(graph_with(16, ops, "\"sms\": 100, \"comm_sms\": 20,"), costs);
  EXPECT_NEAR(slowed.spans[0].end_us, 1000 / 0.8, 1e-6);
}

TEST_F(OnA100, APipelineHasItsBubbles) {
  // GPipe: K stages and m microbatches take (K + m - 1) forwards and as many backwards. The last
  // weight gradient of a stage does not hold up the stage before it.
  const Graph graph = graph_from_json(
      R"({"training": {"layers": 4, "hidden": 64, "sequence": 16, "pipeline": 4, "microbatches": 3,
          "gpipe": true, "tflops": 0.00001}})",
      "w");
  const Timeline line = run(graph, costs);
  double forward = 0, backward = 0;
  for (const Op& op : graph.ops)
    if (op.layer == 0 && op.microbatch == 0 && !op.collective)
      (op.phase == Phase::kForward ? forward : backward) += op.us;
  const double weights = graph.ops[static_cast<size_t>(op_named(graph, "b0.0aw"))].us;
  EXPECT_NEAR(line.us, 6 * (forward + backward) - 3 * weights, 0.001 * line.us);
}

TEST_F(OnA100, TracesHaveStreamsAndLinks) {
  const Graph graph = graph_with(16, R"({"id": "c", "us": 10},
{"id": "g", "collective": "all_reduce", "bytes": 1000000, "group": "all", "after": ["c"]})");
  const Timeline line = run(graph, costs);
  std::ostringstream out;
  write_trace(machine, graph, line, costs, out);
  const auto document = nlohmann::json::parse(out.str());
  std::set<std::string> names;
  int spans = 0;
  for (const auto& event : document["traceEvents"]) {
    if (event["ph"] == "M")
      names.insert(event["args"]["name"]);
    else
      spans++;
  }
  EXPECT_TRUE(names.count("rank 0 and 15 like it"));
  EXPECT_TRUE(names.count("compute") && names.count("comm") && names.count("links, the busiest"));
  EXPECT_GT(spans, 2);  // two operations, and links
  EXPECT_NE(timelines_svg(graph, line, graph, line).find("</svg>"), std::string::npos);
}

TEST(LinkSharing, SpeedsAreMaxMinFair) {
  // a has link 0 for itself up to 60%; b and c share link 1.
  const CommCost a{1, "", {{0, 0.6}}}, b{1, "", {{0, 0.4}, {1, 1.0}}}, c{1, "", {{1, 0.5}}};
  LinkSharing sharing({&a, &b, &c});
  EXPECT_EQ(sharing.speeds({{0, 0}}), std::vector<double>{1});
  EXPECT_EQ(sharing.speeds({{0, 0}, {1, 0}}), (std::vector<double>{1, 1}));
  const auto fair = sharing.speeds({{1, 0}, {2, 0}});
  EXPECT_NEAR(fair[0], 2.0 / 3, 1e-9);  // 1.0x + 0.5x = 1
  EXPECT_NEAR(fair[1], 2.0 / 3, 1e-9);
  const auto first = sharing.speeds({{1, 0}, {2, 5}});
  EXPECT_NEAR(first[1], 1, 1e-9);
  EXPECT_NEAR(first[0], 0.5, 1e-9);
}

}  // namespace
}  // namespace weft::workload
