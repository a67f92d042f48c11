// Passes on workloads small enough to know the answer.
#include "src/workload/passes.h"

#include <gtest/gtest.h>

#include "algorithms/catalogue/catalogue.h"
#include "src/base/error.h"
#include "src/workload/list_schedule.h"
#include "src/workload/plan.h"
#include "tests/workload/graphs.h"

namespace weft::workload {
namespace {

struct OnTwoHosts : testing::Test {
  const Machine machine = load_machine("dgx-a100x2");
  CommCosts costs{machine};

  Search after(const Graph& graph, const char* pass) {
    Search search(graph, costs);
    search.begin_pass(pass);
    find_pass(pass)->run(search);
    return search;
  }
};

Graph training(const std::string& more) {
  return graph_from_json(
      "{\"training\": {\"layers\": 4, \"hidden\": 4096, \"heads\": 32, \"sequence\": 2048, "
      "\"tflops\": 150, " +
          more + "}}",
      "w");
}

TEST_F(OnTwoHosts, MegatronHidesGradientsThenParameters) {
  const Graph graph = training("\"data\": 16, \"zero\": 1");
  const Search search = after(graph, "megatron");
  const double a = run(graph, costs).us;
  double b = a;
  for (const Tried& each : search.tried())
    if (each.what.find("grad") != std::string::npos && each.taken) b = each.us;
  EXPECT_LT(b, a);
  EXPECT_LT(search.timeline().us, b);
  EXPECT_TRUE(search.notes().empty());
}

TEST_F(OnTwoHosts, MegatronWarnsOfGathersInTheWrongOrder) {
  const Graph graph = graph_with(
      16,
      R"({"id": "w1", "collective": "all_gather", "bytes": 1000000, "group": "all", "phase": "param", "layer": 1},
{"id": "w0", "collective": "all_gather", "bytes": 1000000, "group": "all", "phase": "param", "layer": 0},
{"id": "f0", "us": 10, "layer": 0, "after": ["w0"]},
{"id": "f1", "us": 10, "layer": 1, "after": ["f0", "w1"]})");
  const Search search = after(graph, "megatron");
  ASSERT_EQ(search.notes().size(), 1u);
  EXPECT_NE(search.notes()[0].find("not gathered in the order of forward"), std::string::npos);
}

TEST_F(OnTwoHosts, CentauriIsNeverSlowerAndTriesAllThreeDimensions) {
  const Graph graph = training("\"tensor\": 16, \"batch\": 2");
  const Search search = after(graph, "centauri");
  EXPECT_LT(search.timeline().us, run(graph, costs).us);
  std::string tried;
  for (const Tried& each : search.tried()) tried += each.what + "\n";
  for (const char* words :
       {"by hosts", "reduce_scatter and all_gather", "parts", "model tier", "layer tier"})
    EXPECT_NE(tried.find(words), std::string::npos) << words;
}

TEST_F(OnTwoHosts, LancetPutsWeightGradientsUnderAllToAll) {
  // dX of layer 1, an all-to-all, dX of layer 0; the weight gradient of layer 1 fits under it.
  const Graph graph = graph_with(16, R"({"id": "x1", "us": 100, "phase": "dX"},
{"id": "w1", "us": 100, "phase": "dW", "after": ["x1"]},
{"id": "w2", "us": 900, "phase": "dW", "after": ["x1"]},
{"id": "t", "collective": "alltoall", "bytes": 16000000, "group": "all", "phase": "dX", "after": ["x1"]},
{"id": "x0", "us": 100, "phase": "dX", "after": ["t"]})");
  const double comm = costs.cost(CollectiveKind::kAllToAll, 16000000, graph.groups[0].instances).us;
  ASSERT_GT(comm, 200);
  ASSERT_LT(comm, 1000);
  const Search search = after(graph, "lancet");
  EXPECT_LE(search.timeline().us, 100 + std::max(comm, 100.0) + 100 + 900 + 1);
  EXPECT_LT(search.timeline().exposed_us, run(graph, costs).exposed_us + 1e-6);
}

TEST_F(OnTwoHosts, LancetCutsForwardByDynamicProgramming) {
  const Graph graph = training("\"data\": 16, \"batch\": 8, \"moe_every\": 2");
  const Search search = after(graph, "lancet");
  bool taken = false;
  for (const Tried& each : search.tried())
    taken |= each.taken && each.what.find("dynamic programming") != std::string::npos;
  EXPECT_TRUE(taken);
  EXPECT_LT(search.timeline().exposed_by_kind.at(CollectiveKind::kAllToAll),
            0.5 * run(graph, costs).exposed_by_kind.at(CollectiveKind::kAllToAll));
}

TEST_F(OnTwoHosts, ChainedPartsReachTheNextForwardInItsOrder) {
  const Graph graph = training("\"data\": 16, \"backward_first\": true");
  const Search search = after(graph, "chain");
  EXPECT_LT(search.timeline().us, run(graph, costs).us);
  std::vector<int> layers;
  for (const Op& op : search.best().ops)
    if (op.collective) layers.push_back(op.layer);
  EXPECT_EQ(layers, (std::vector<int>{0, 1, 2, 3}));
}

TEST_F(OnTwoHosts, ExtraWorkFillsBubbles) {
  std::string ops;
  // Two stages, one microbatch: the first waits while the second computes.
  ops = R"({"id": "f0", "us": 100, "ranks": [0]},
{"id": "s", "collective": "send_recv", "bytes": 1000, "group": "all", "after": ["f0"]},
{"id": "f1", "us": 300, "ranks": [1], "after": ["s"]},
{"id": "b", "collective": "send_recv", "bytes": 1000, "group": "all", "after": ["f1"], "phase": "dX"},
{"id": "x0", "us": 100, "ranks": [0], "after": ["b"], "phase": "dX"},
{"id": "e", "us": 250, "ranks": [0], "phase": "extra", "after": ["f0"]})";
  const Graph graph = graph_with(2, ops);
  const double before = run(graph, costs).us;
  const Search search = after(graph, "fisher");
  EXPECT_NEAR(search.timeline().us, before - 250, 1);
}

TEST_F(OnTwoHosts, TokenSlicesShortenAPipeline) {
  const Graph graph = training("\"pipeline\": 4, \"gpipe\": true, \"min_tokens\": 128");
  const Search search = after(graph, "terapipe");
  EXPECT_GT(run(graph, costs).us / search.timeline().us, 2);
}

// Every rewriting is checked when it is offered, and none may make a step slower.
TEST_F(OnTwoHosts, PassesBuildOnEachOtherInAnyOrder) {
  const std::string layouts[] = {
      "\"tensor\": 4, \"data\": 4, \"zero\": 1, \"moe_every\": 2, \"microbatches\": 2",
      "\"data\": 16, \"backward_first\": true",
      "\"tensor\": 2, \"pipeline\": 4, \"microbatches\": 2, \"blocking\": false, \"gpipe\": true",
      "\"tensor\": 2, \"pipeline\": 2, \"data\": 4, \"zero\": 3, \"blocking\": false"};
  const std::vector<std::string> orders[] = {
      {"megatron", "lancet", "chain", "fisher", "terapipe", "centauri"},
      {"centauri", "terapipe", "lancet", "chain", "megatron"},
      {"chain", "megatron", "centauri"}};
  for (const std::string& layout : layouts)
    for (const auto& order : orders) {
      const Graph graph = training(layout);
      Search search(graph, costs);
      const double before = search.timeline().us;
      for (const std::string& pass : order) {
        search.begin_pass(pass);
        EXPECT_NO_THROW(find_pass(pass)->run(search)) << layout << ": " << pass;
      }
      EXPECT_LE(search.timeline().us, before * 1.001) << layout;
      EXPECT_EQ(plan_of(search.best(), search.timeline()).calls.size(), search.best().ops.size());
    }
}

TEST_F(OnTwoHosts, PassesWithoutTheirOperationsSaySo) {
  const Graph graph = graph_with(2, R"({"id": "f", "us": 100})");
  for (const char* pass : {"lancet", "chain", "fisher", "terapipe"}) {
    const Search search = after(graph, pass);
    EXPECT_EQ(search.notes().size(), 1u) << pass;
    EXPECT_TRUE(search.tried().empty()) << pass;
  }
}

TEST_F(OnTwoHosts, PlansAreReadAsTheyWereWritten) {
  const Graph graph = training("\"data\": 16, \"zero\": 1, \"tensor\": 1");
  const Search search = after(graph, "megatron");
  const Plan plan = plan_of(search.best(), search.timeline());
  const Plan again = plan_from_json(plan_to_json(plan), "p.json");
  EXPECT_EQ(plan_to_json(again), plan_to_json(plan));
  double bytes = 0, asked = 0;
  for (const PlannedCall& call : again.calls) bytes += call.bytes;
  for (const Op& op : graph.ops) asked += op.bytes;
  EXPECT_NEAR(bytes, asked, 1);
  for (size_t i = 0; i < again.calls.size(); i++)
    for (const int before : again.calls[i].after) EXPECT_LT(before, static_cast<int>(i));
  EXPECT_THROW((void)plan_from_json("{}", "p.json"), Error);
}

}  // namespace
}  // namespace weft::workload
