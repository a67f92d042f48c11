// Sketches: TACCL's files are read. Everything else is refused with a reason.
#include <gtest/gtest.h>

#include "algorithms/synth/taccl/taccl_topology.h"
#include "src/base/error.h"
#include "tests/algorithms/synth/sketches.h"

namespace weft::test {
namespace {

std::string refusal(const std::string& json) {
  try {
    read_sketch(json, "file");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Sketches, InFilesAreUnderstood) {
  const std::string folder = WEFT_TEST_DATA "/sketches/";
  const Sketch relay = load_sketch(folder + "relay-pair-n2.json");
  EXPECT_EQ(relay.hosts, 2);
  EXPECT_EQ(relay.connections.at(0), std::vector{0});
  const Sketch all = load_sketch(folder + "all-pair-n2.json");
  EXPECT_EQ(all.intranode, Sketch::Intranode::kMaxMin);
  EXPECT_EQ(all.conn, Sketch::Connections::kAll);
  EXPECT_TRUE(all.own_first);
  const Sketch switched = load_sketch(folder + "switch-4x-n1.json");
  EXPECT_EQ(switched.hosts, 1);
  EXPECT_EQ(switched.policies, std::vector{Sketch::Policy::kManyLinks});
  EXPECT_EQ(load_sketch(folder + "switch-16x-n2.json").senders.at(10).front(), 8);
}

TEST(TacclTopologies, InFilesAreUnderstood) {
  const std::string folder = WEFT_TEST_DATA "/sketches/";
  const TacclTopology mesh = load_taccl_topology(folder + "topology-8x.json");
  EXPECT_EQ(mesh.gpus, 8);
  EXPECT_EQ(mesh.beta(0, 3), 20);
  EXPECT_EQ(mesh.remote_beta, 80);
  const TacclTopology ring = load_taccl_topology(folder + "topology-4x.json");
  EXPECT_EQ(ring.gpus, 4);
  EXPECT_EQ(ring.beta(0, 3), 10);
  EXPECT_EQ(ring.beta(0, 2), 0);
}

TEST(Sketches, ThatTacclShipsAreUnderstood) {
  REQUIRE_SKETCHES();
  int sketches = 0, topologies = 0;
  for (const auto& entry : std::filesystem::directory_iterator(WEFT_SHARED_SKETCHES)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("sk")) {
      const Sketch s = load_sketch(entry.path());
      EXPECT_NE(name.find("-n" + std::to_string(s.hosts)), std::string::npos) << name;
      sketches++;
    } else {
      const TacclTopology t = load_taccl_topology(entry.path());
      EXPECT_EQ(t.gpus, name.find("dgx2") != std::string::npos ? 16 : 8) << name;
      EXPECT_GT(t.remote_beta, 0) << name;
      topologies++;
    }
  }
  EXPECT_GE(sketches, 7);
  EXPECT_GE(topologies, 4);
}

TEST(Sketches, SayAllThatTheFileSays) {
  const Sketch s = sketch(kDgx2Sketch);
  EXPECT_EQ(s.hosts, 2);
  EXPECT_EQ(s.intranode, Sketch::Intranode::kSwitch);
  ASSERT_EQ(s.switches.size(), 1u);
  EXPECT_EQ(s.switches[0].size(), 16u);
  EXPECT_EQ(s.policies, std::vector{Sketch::Policy::kFewLinks});
  EXPECT_EQ(s.conn, Sketch::Connections::kMap);
  EXPECT_EQ(s.connections.at(13), std::vector{12});
  EXPECT_EQ(s.senders.at(3), (std::vector{2, 3}));
  EXPECT_TRUE(s.own_first);
  EXPECT_EQ(s.symmetry, (std::vector<std::pair<int, int>>{{2, 16}, {16, 32}}));
  EXPECT_EQ(s.chunks, 2);
}

TEST(Sketches, ThatAreWrongAreRefusedWithFileElementAndReason) {
  const struct {
    const char *from, *to, *reason;
  } cases[] = {
      {"{\"nnodes\": 2,", "{", "file: nnodes is missing"},
      {"\"nnodes\": 2", "\"nnodes\": 0", "file: nnodes must be a whole number from 1 to 65536"},
      {"\"nnodes\": 2", "\"nnodes\": 2, \"colour\": 1", "file: colour is unknown"},
      {"\"switch\",", "\"ring\",",
       "file: intranode_sketch.strategy is 'ring', known are none, switch, minmax and maxmin"},
      {"\"switch\",", "\"none\",",
       "file: intranode_sketch.switches has no meaning with strategy 'none'"},
      {"[[0,1,", "[[0,0,", "file: intranode_sketch.switches[0] names GPU 0 twice"},
      {"[[0,1,", "[[0,-1,", "file: intranode_sketch.switches[0][1] must be the number of a GPU"},
      {"[\"uc-min\"]", "[]",
       "file: intranode_sketch.switch_hyperedge_strategy must have an entry for each of the 1 "
       "switches"},
      {"uc-min", "uc-mid",
       "file: intranode_sketch.switch_hyperedge_strategy[0] must be \"uc-min\" or \"uc-max\""},
      {"\"relay\"", "\"ring\"", "file: internode_sketch.strategy is 'ring', known is relay"},
      {"\"1\":[0],\"3\"", "\"x\":[0],\"3\"",
       "file: internode_sketch.internode_conn[\"x\"] must have the number of a GPU as its key"},
      {"{\"1\":[0,1]", "{\"2\":[0,1]",
       "file: internode_sketch.gpus_to_sender_rev_map names sender 2, which internode_conn does "
       "not know"},
      {"\"enforce_ordering\": true", "\"enforce_ordering\": 1",
       "file: internode_sketch.enforce_ordering must be true or false"},
      {"[2, 16]", "[16, 16]",
       "file: symmetry_offsets[0] must have an offset from 1 to the group size - 1"},
      {"[2, 16]", "[2]", "file: symmetry_offsets[0] must be [offset, group size]"},
      {"\"input_chunkup\": 2", "\"input_chunkup\": 0",
       "file: hyperparameters.input_chunkup must be a whole number from 1 to 64"},
  };
  for (const auto& c : cases) EXPECT_EQ(refusal(replaced(kDgx2Sketch, c.from, c.to)), c.reason);
  EXPECT_EQ(refusal("[1]"), "file: must be an object");
  EXPECT_EQ(refusal("{"), "file: not JSON");
  EXPECT_EQ(refusal(replaced(kOneHostSketch, "\"nnodes\": 1", "\"nnodes\": 2")),
            "file: internode_sketch is missing");
  EXPECT_EQ(refusal(replaced(kNdv2Sketch, "\"nnodes\": 2", "\"nnodes\": 1")),
            "file: internode_sketch has no meaning with one node");
  EXPECT_THROW(load_sketch("/no/such/sketch"), Error);
}

TEST(TacclTopologies, WithoutEndInBandwidthAreRefused) {
  const char* good = R"({"name": "x", "gpus_per_node": 8, "nics_per_node": 1, "alpha": 0.3,
    "node_betas_list": [23, 46], "remote_alpha": 2.6, "remote_beta": 105})";
  EXPECT_EQ(read_taccl_topology(good, "file").beta(0, 3), 23);
  EXPECT_EQ(read_taccl_topology(good, "file").beta(0, 1), 46);
  EXPECT_EQ(read_taccl_topology(good, "file").beta(0, 5), 0);
  const auto why = [&](const char* from, const char* to) -> std::string {
    try {
      read_taccl_topology(replaced(good, from, to), "file");
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(why("105", "0"), "file: remote_beta is 0: a bandwidth without end");
  EXPECT_EQ(why("[23, 46]", "[0, 46]"), "file: node_betas_list has a 0: a bandwidth without end");
  EXPECT_EQ(why("[23, 46]", "[1, 2, 3]"),
            "file: node_betas_list must have one entry, or two for the NVLinks of an NDv2 with 8 "
            "GPUs");
  EXPECT_EQ(why("0.3", "-1"), "file: alpha must be a number, at least 0");
}

}  // namespace
}  // namespace weft::test
