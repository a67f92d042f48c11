// Files of workloads: what is read, and how bad ones are refused.
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/workload/json_reader.h"
#include "src/workload/pipeline_order.h"
#include "tests/workload/graphs.h"

namespace weft::workload {
namespace {

std::string refusal(const std::string& text) {
  try {
    (void)graph_from_json(text, "w.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ncclInvalidArgument);
    return error.what();
  }
  return "accepted";
}

void expect_refused(const std::string& text, const std::string& words) {
  const std::string got = refusal(text);
  EXPECT_NE(got.find(words), std::string::npos) << got;
}

TEST(WorkloadFile, KeepsWhatItSays) {
  const Graph graph =
      graph_with(4, R"({"id": "f", "us": 10, "layer": 3, "phase": "dW", "axis": "tokens"},
 {"id": "r", "collective": "reduce_scatter", "bytes": 4096, "group": "all", "after": ["f"], "priority": 2}
)",
                 "\"sms\": 132, \"comm_sms\": 8,");
  ASSERT_EQ(graph.ops.size(), 2u);
  EXPECT_EQ(graph.ops[0].phase, Phase::kWeightGradient);
  EXPECT_EQ(graph.ops[0].line, 3);
  EXPECT_EQ(graph.ops[1].line, 4);
  EXPECT_EQ(graph.ops[1].collective, CollectiveKind::kReduceScatter);
  EXPECT_EQ(graph.ops[1].after, std::vector<int>{0});
  EXPECT_EQ(graph.sms, 132);
  const Graph again = graph_from_json(graph_to_json(graph), "again");
  EXPECT_EQ(graph_to_json(again), graph_to_json(graph));
}

TEST(WorkloadFile, KeepsThePartsOfACall) {
  const Graph graph = graph_with(
      2,
      R"({"id": "a", "collective": "all_reduce", "bytes": 10, "group": "all", "parts": 2, "call_bytes": 20},
 {"id": "b", "collective": "all_reduce", "bytes": 10, "group": "all", "part": 1, "parts": 2, "call_bytes": 20})");
  const Graph again = graph_from_json(graph_to_json(graph), "again");
  EXPECT_EQ(again.ops[1].part, 1);
  EXPECT_EQ(again.ops[1].parts, 2);
  EXPECT_DOUBLE_EQ(again.ops[1].call_bytes, 20);
  EXPECT_EQ(graph_to_json(again), graph_to_json(graph));
}

TEST(WorkloadFile, NamesTheLineAndTheOperationOfAnError) {
  const std::string f = R"({"id": "f", "us": 1})";
  expect_refused(file_of(2, f + ",\n" + R"({"id": "g", "us": -3})"),
                 "w.json: line 4: operation 'g': 'us' must be a number, not negative");
  expect_refused(
      file_of(2,
              f + ",\n" + R"({"id": "g", "collective": "all_reduce", "bytes": 1, "group": "x"})"),
      "line 4: operation 'g': there is no group 'x'");
  expect_refused(file_of(2, f + ",\n" + R"({"id": "g", "us": 1, "ranks": [0, 2]})"),
                 "line 4: operation 'g': 'ranks' names rank 2; there are 2 ranks");
  expect_refused(file_of(2, f + ",\n" + R"({"id": "g", "us": 1, "after": ["h"]})"),
                 "line 4: operation 'g': is after 'h', which is not there");
  expect_refused(file_of(2, f + ",\n" + f), "operation 'f': there are two with this id");
  expect_refused(file_of(2, R"({"id": "a", "us": 1, "after": ["b"]},
{"id": "b", "us": 1, "after": ["a"]})"),
                 "waits for itself, in a circle of dependencies");
  expect_refused(file_of(2, R"({"id": "a", "us": 1, "ranks": [0]},
{"id": "b", "us": 1, "ranks": [1], "after": ["a"]})"),
                 "line 4: operation 'b' is after 'a', which no rank of it runs");
  expect_refused(R"({"ranks": 2, "groups": {"g": [0, 5]}, "ops": []})",
                 "group 'g' names rank 5; there are 2 ranks");
  expect_refused(R"({"ranks": 2, "groups": {"g": [0, 0]}, "ops": []})", "names rank 0 twice");
  expect_refused(
      file_of(3, R"({"id": "s", "collective": "send_recv", "bytes": 1, "group": "all"})"),
      "send_recv needs groups of two ranks");
  expect_refused("{", "not JSON");
  expect_refused(R"({"ranks": 2})", "'ops' must be a list");
}

TEST(WorkloadFile, TheOrderOfAStreamCanMakeACircleToo) {
  // b comes first on the stream, but waits for what comes after it.
  expect_refused(file_of(2, R"({"id": "b", "us": 1, "after": ["a"]},
{"id": "a", "us": 1})"),
                 "in a circle of dependencies and of the order of streams");
}

TEST(WorkloadFile, LinesAreThoseOfTheElements) {
  EXPECT_EQ(element_lines("{\"x\": [1],\n\"ops\": [\n{\"a\": [\"]\"]},\n\n{}, {}]}", "ops"),
            (std::vector<int>{3, 5, 5}));
  EXPECT_TRUE(element_lines("{\"ops\": []}", "ops").empty());
}

TEST(PipelineOrder, OneForwardOneBackwardAfterTheWarmUp) {
  const auto of_stage = [](int stage, bool gpipe) {
    std::string text;
    for (const Turn& turn : pipeline_turns(3, 4, gpipe))
      if (turn.stage == stage)
        text += (turn.backward ? "b" : "f") + std::to_string(turn.microbatch);
    return text;
  };
  EXPECT_EQ(of_stage(0, false), "f0f1f2b0f3b1b2b3");
  EXPECT_EQ(of_stage(2, false), "f0b0f1b1f2b2f3b3");
  EXPECT_EQ(of_stage(1, true), "f0f1f2f3b0b1b2b3");
}

TEST(WorkloadFile, ATrainingStepHasTheCollectivesOfMegatron) {
  const Graph graph = graph_from_json(
      R"({"training": {"layers": 4, "hidden": 64, "heads": 4, "sequence": 32, "tensor": 2, "pipeline": 2,
          "data": 2, "microbatches": 3, "zero": 1, "tflops": 1}})",
      "w.json");
  std::map<CollectiveKind, int> calls;
  for (const Op& op : graph.ops)
    if (op.collective) calls[*op.collective]++;
  EXPECT_EQ(calls[CollectiveKind::kAllReduce], 4 * 4 * 3);  // four a layer and microbatch
  EXPECT_EQ(calls[CollectiveKind::kSendRecv], 2 * 3);       // each way
  EXPECT_EQ(calls[CollectiveKind::kReduceScatter], 4);
  EXPECT_EQ(calls[CollectiveKind::kAllGather], 4);
  EXPECT_EQ(actors_of(graph).ranks.size(), 2u);  // a stage is an actor
}

}  // namespace
}  // namespace weft::workload
