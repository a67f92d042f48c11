// Traces of other tools.
#include "src/workload/import.h"

#include <gtest/gtest.h>

#include "algorithms/catalogue/catalogue.h"
#include "src/base/error.h"
#include "src/base/regular_file.h"
#include "src/workload/timeline.h"

namespace weft::workload {
namespace {

std::string kernel(const char* name, double begin, double us, const std::string& args) {
  return "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"" + std::string(name) +
         "\", \"ts\": " + std::to_string(begin) + ", \"dur\": " + std::to_string(us) +
         ", \"args\": {" + args + "}}";
}

const char* const kAllReduceArgs =
    R"("stream": 20, "Collective name": "allreduce", "In msg nelems": 1000000, "Out msg nelems": 1000000,
       "Group size": 4, "dtype": "Float", "Process Group Ranks": "[0, 1, 2, 3]")";

// Backward in two pieces; the first bucket's all_reduce runs beside the second, the second bucket's
// after it; then the optimizer.
std::string ddp_step() {
  return R"({"distributedInfo": {"rank": 0, "world_size": 4}, "traceEvents": [)" +
         kernel("gemm", 0, 100, "\"stream\": 7") + "," +
         kernel("ncclDevKernel_AllReduce", 101, 80, kAllReduceArgs) + "," +
         kernel("gemm", 102, 150, "\"stream\": 7") + "," +
         kernel("ncclDevKernel_AllReduce", 253, 80, kAllReduceArgs) + "," +
         kernel("adam", 335, 20, "\"stream\": 7") + "]}";
}

TEST(Kineto, ExposedCommunicationIsThatOfTheTrace) {
  const SeenTrace seen = graph_from_kineto(ddp_step(), "t.json");
  EXPECT_EQ(seen.kernels, 3);
  EXPECT_EQ(seen.collectives, 2);
  EXPECT_NEAR(seen.us, 355, 1e-6);
  EXPECT_NEAR(seen.exposed_us, 80 + 1, 1e-6);  // 101 to 102, 253 to 333
  EXPECT_EQ(seen.graph.nranks, 4);
  const Machine machine = load_machine("dgx-h100");
  CommCosts costs(machine);
  const Timeline line = run(seen.graph, costs);
  EXPECT_NEAR(line.exposed_us, seen.exposed_us, 0.1 * seen.exposed_us);
  EXPECT_NEAR(line.us, seen.us, 0.1 * seen.us);
  for (const Op& op : seen.graph.ops) EXPECT_DOUBLE_EQ(op.bytes, op.collective ? 4e6 : 0);
}

// A DDP step of PyTorch 2.11 on an H200 (perf/overlap/ddp_trace.py with 1,024 rows), cut down to
// what is read. Two processes share the GPU, so kernels wait for room, and so do collectives.
TEST(Kineto, ExposedCommunicationOfAMeasuredStepIsThatOfTheTrace) {
  const std::string path = std::string(WEFT_TEST_DATA) + "/workloads/traces/ddp-h200.json";
  const SeenTrace seen = graph_from_kineto(read_regular_file(path, 1 << 20), path);
  EXPECT_EQ(seen.collectives, 12);
  EXPECT_NEAR(seen.exposed_us, 18990, 10);
  const Machine machine = load_machine("hgx-h200");
  CommCosts costs(machine);
  const Timeline line = run(seen.graph, costs);
  EXPECT_NEAR(line.exposed_us, seen.exposed_us, 0.02 * seen.exposed_us);
  EXPECT_NEAR(line.us, seen.us, 0.01 * seen.us);
}

TEST(Kineto, KernelsOfOneCallAreOneCollective) {
  const std::string args = std::string(kAllReduceArgs) + ", \"External id\": 5";
  const std::string text = R"({"distributedInfo": {"world_size": 4}, "traceEvents": [)" +
                           kernel("weft_a", 0, 10, args) + "," + kernel("weft_b", 12, 10, args) +
                           "]}";
  const SeenTrace seen = graph_from_kineto(text, "t.json");
  EXPECT_EQ(seen.collectives, 1);
  ASSERT_EQ(seen.graph.ops.size(), 1u);
  EXPECT_DOUBLE_EQ(seen.graph.ops[0].us, 22);
}

std::string launch(int correlation, double at) {
  return "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"ts\": " +
         std::to_string(at) +
         ", \"dur\": 1, \"args\": {\"correlation\": " + std::to_string(correlation) + "}}";
}

// The collective began a moment after the second gemm. But it was launched before, so it waits for
// the first only, and both run side by side.
TEST(Kineto, ACollectiveWaitsForWhatWasLaunchedBeforeIt) {
  const auto numbered = [](int correlation, const std::string& args) {
    return args + ", \"correlation\": " + std::to_string(correlation);
  };
  const std::string text = R"({"distributedInfo": {"world_size": 4}, "traceEvents": [)" +
                           launch(1, 0) + "," + launch(2, 2) + "," + launch(3, 4) + "," +
                           kernel("gemm", 10, 100, numbered(1, "\"stream\": 7")) + "," +
                           kernel("gemm", 110.2, 100, numbered(3, "\"stream\": 7")) + "," +
                           kernel("ncclDevKernel", 111, 60, numbered(2, kAllReduceArgs)) + "]}";
  const SeenTrace seen = graph_from_kineto(text, "t.json");
  EXPECT_EQ(seen.exposed_us, 0);
  const Machine machine = load_machine("dgx-h100");
  CommCosts costs(machine);
  const Timeline line = run(seen.graph, costs);
  EXPECT_NEAR(line.exposed_us, 0, 1e-6);
  EXPECT_NEAR(line.us, 200, 2);
}

TEST(Kineto, OnlyTheLastMarkedStepCounts) {
  std::string text = ddp_step();
  const std::string marked =
      R"({"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#4", "ts": 90, "dur": 1000},)";
  text.insert(text.find("[{") + 1, marked);
  EXPECT_EQ(graph_from_kineto(text, "t.json").kernels, 2);  // the first began before it
}

TEST(Kineto, WaitsForTheHostAreNotCommunication) {
  const std::string text = R"({"traceEvents": [)" + kernel("a", 0, 10, "\"stream\": 7") + "," +
                           kernel("b", 500, 10, "\"stream\": 7") + "]}";
  const SeenTrace seen = graph_from_kineto(text, "t.json");
  const Machine machine = load_machine("dgx-h100");
  CommCosts costs(machine);
  const Timeline line = run(seen.graph, costs);
  EXPECT_NEAR(line.us, 510, 1e-6);
  EXPECT_NEAR(line.compute_us, 20, 1e-6);
  EXPECT_EQ(line.exposed_us, 0);
}

TEST(Kineto, GroupsOfSomeRanksStandForThoseOfAll) {
  const auto with_ranks = [](const char* ranks) {
    return R"({"distributedInfo": {"world_size": 8}, "traceEvents": [)" +
           kernel("ncclDevKernel_AllReduce", 0, 10,
                  std::string(R"("stream": 20, "Collective name": "allreduce",
                     "In msg nelems": 10, "Out msg nelems": 10, "Group size": 2, "dtype": "Float",
                     "Process Group Ranks": ")") +
                      ranks + "\"") +
           "]}";
  };
  const auto instances = [&](const char* ranks) {
    return graph_from_kineto(with_ranks(ranks), "t").graph.groups.at(0).instances;
  };
  EXPECT_EQ(instances("[2, 3]"), (Instances{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(instances("[1, 5]"), (Instances{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(instances("[1, 2]"), (Instances{{1, 2}}));  // no division of all ranks has it
}

TEST(Kineto, SendsAreNotTakenAsCompute) {
  const std::string text =
      R"({"traceEvents": [)" +
      kernel("ncclDevKernel_SendRecv", 0, 1, R"("stream": 1, "Collective name": "send")") + "]}";
  EXPECT_THROW((void)graph_from_kineto(text, "t"), Error);
}

TEST(Kineto, BadTracesAreRefused) {
  for (const char* text :
       {R"({"traceEvents": []})", R"({"traceEvents": 7})", R"({"traceEvents": [{"ph": 3}]})",
        R"({"traceEvents": [{"ph": "X", "cat": "kernel", "name": [], "ts": 1, "dur": 1}]})",
        R"({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": "inf"}]})"})
    EXPECT_THROW((void)graph_from_kineto(text, "t"), Error) << text;
  EXPECT_THROW(
      (void)graph_from_kineto(
          R"({"traceEvents": [)" + kernel("ncclDevKernel", 0, 1, "\"stream\": 1") + "]}", "t"),
      Error);
}

std::string chakra(const std::string& more = "") {
  return R"({"world_size": 4, "nodes": [
{"id": "1", "name": "fwd", "type": "COMP_NODE", "durationMicros": "100", "attr": [{"name": "is_cpu_op", "boolVal": false}]},
{"id": "2", "name": "meta", "type": "METADATA_NODE", "dataDeps": ["1"]},
{"id": "3", "name": "ar", "type": "COMM_COLL_NODE", "dataDeps": ["2"],
 "attr": [{"name": "comm_type", "int64Val": "0"}, {"name": "comm_size", "int64Val": "4096"}]},
{"id": 4, "name": "opt", "type": 4, "duration_micros": 7, "data_deps": [3]})" +
         more + "]}";
}

TEST(Chakra, NodesWithoutTimeArePassedThrough) {
  const Graph graph = graph_from_chakra(chakra(), "c.json");
  ASSERT_EQ(graph.ops.size(), 3u);
  EXPECT_EQ(graph.nranks, 4);
  EXPECT_DOUBLE_EQ(graph.ops[0].us, 100);
  EXPECT_EQ(graph.ops[1].collective, CollectiveKind::kAllReduce);
  EXPECT_DOUBLE_EQ(graph.ops[1].bytes, 4096);
  EXPECT_EQ(graph.ops[1].after, std::vector<int>{0});
  EXPECT_EQ(graph.ops[2].after, std::vector<int>{1});
}

// The wire format, by hand.
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string number(int field, uint64_t value) {
  return varint(static_cast<uint64_t>(field) << 3) + varint(value);
}
std::string block(int field, const std::string& bytes) {
  return varint(static_cast<uint64_t>(field) << 3 | 2) + varint(bytes.size()) + bytes;
}
std::string with_length(const std::string& bytes) { return varint(bytes.size()) + bytes; }

std::string chakra_in_protobuf() {
  const auto attribute = [](const char* name, int field, uint64_t value) {
    return block(10, block(1, name) + number(field, value));
  };
  return with_length(block(1, "0.0.4")) +
         with_length(number(1, 1) + block(2, "fwd") + number(3, 4) + number(7, 100) +
                     attribute("is_cpu_op", 27, 0)) +
         with_length(number(1, 2) + block(2, "ar") + number(3, 7) + block(5, varint(1)) +
                     attribute("comm_type", 9, 2) + attribute("comm_size", 13, 1 << 20)) +
         with_length(number(1, 300) + block(2, "opt") + number(3, 4) + number(4, 2) + number(7, 7));
}

TEST(Chakra, ProtobufIsReadToo) {
  const Graph graph = graph_from_chakra(chakra_in_protobuf(), "c.et", 8);
  ASSERT_EQ(graph.ops.size(), 3u);
  EXPECT_EQ(graph.nranks, 8);
  EXPECT_DOUBLE_EQ(graph.ops[0].us, 100);
  EXPECT_EQ(graph.ops[1].collective, CollectiveKind::kAllGather);
  EXPECT_DOUBLE_EQ(graph.ops[1].bytes, 1 << 20);
  EXPECT_EQ(graph.ops[1].after, std::vector<int>{0});
  EXPECT_EQ(graph.ops[2].after, std::vector<int>{1});
  EXPECT_DOUBLE_EQ(graph.ops[2].us, 7);
  // Without the number of ranks a collective would cost nothing.
  EXPECT_THROW((void)graph_from_chakra(chakra_in_protobuf(), "c.et"), Error);
  for (size_t cut = 1; cut < chakra_in_protobuf().size(); cut++) {
    try {
      (void)graph_from_chakra(chakra_in_protobuf().substr(0, cut), "c.et", 8);
    } catch (const Error&) {  // one line, no crash
    }
  }
}

// A ladder of nodes without time: each waits for both of the rung below. There are 2^2000 paths.
TEST(Chakra, LongWaysThroughNodesWithoutTimeAreFollowed) {
  std::string more;
  const auto node = [&](int id, int first, int second) {
    more += ", {\"id\": " + std::to_string(id) +
            ", \"name\": \"m\", \"type\": 1, \"data_deps\": [" + std::to_string(first) + ", " +
            std::to_string(second) + "]}";
  };
  node(100, 1, 1);
  node(101, 1, 1);
  for (int rung = 1; rung < 2000; rung++)
    for (int side = 0; side < 2; side++) node(100 + 2 * rung + side, 98 + 2 * rung, 99 + 2 * rung);
  more += R"(, {"id": 9, "name": "x", "type": 4, "duration_micros": 1, "data_deps": [4098, 4099]})";
  const Graph graph = graph_from_chakra(chakra(more), "c.json");
  EXPECT_EQ(graph.ops.back().after, std::vector<int>{0});
}

TEST(Chakra, BadTracesAreRefused) {
  EXPECT_THROW(
      (void)graph_from_chakra(chakra(R"(, {"id": 9, "name": "x", "type": 1, "data_deps": [10]},
                               {"id": 10, "name": "x", "type": 1, "data_deps": [9]})"),
                              "c"),
      Error);
  EXPECT_THROW((void)graph_from_chakra(
                   chakra(R"(, {"id": 9, "name": "x", "type": 4, "data_deps": [77]})"), "c"),
               Error);
  EXPECT_THROW((void)graph_from_chakra(chakra(R"(, {"id": 9, "name": "x", "type": 7})"), "c"),
               Error);
  EXPECT_THROW((void)graph_from_chakra(chakra(R"(, {"id": 9, "name": "x", "type": 5})"), "c"),
               Error);
  EXPECT_THROW((void)graph_from_chakra(
                   chakra(R"(, {"id": 9, "name": "x", "type": 4, "duration_micros": -1})"), "c"),
               Error);
  EXPECT_THROW((void)graph_from_chakra(
                   chakra(R"(, {"id": 9, "name": "x", "type": 4, "duration_micros": "nan"})"), "c"),
               Error);
}

}  // namespace
}  // namespace weft::workload
