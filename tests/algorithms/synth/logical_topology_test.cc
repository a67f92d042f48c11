// The logical topology: the part of a machine that a sketch keeps.
#include "algorithms/synth/taccl/logical_topology.h"

#include <gtest/gtest.h>

#include <set>

#include "algorithms/catalogue/catalogue.h"
#include "src/base/error.h"
#include "tests/algorithms/synth/sketches.h"

namespace weft::test {
namespace {

TacclTopology ndv2() {
  return read_taccl_topology(R"({"gpus_per_node": 8, "nics_per_node": 1, "alpha": 0.3,
    "node_betas_list": [23, 46], "remote_alpha": 2.6, "remote_beta": 105})",
                             "topology");
}
TacclTopology dgx2() {
  return read_taccl_topology(R"({"gpus_per_node": 16, "nics_per_node": 8, "alpha": 0.3,
    "node_betas_list": [8], "remote_alpha": 2.6, "remote_beta": 105})",
                             "topology");
}

const LogicalLink& link(const LogicalTopology& t, int from, int to) {
  static const LogicalLink kNone;
  const int32_t index = t.link(from, to);
  EXPECT_GE(index, 0) << from << "->" << to;
  return index < 0 ? kNone : t.links[static_cast<size_t>(index)];
}

template <typename Machines>
std::string refusal(const Machines& machine, const std::string& json) {
  try {
    if constexpr (std::is_same_v<Machines, Machine>)
      logical_topology(machine, read_sketch(json, "sketch"), 1 << 20);
    else
      logical_topology(machine, read_sketch(json, "sketch"));
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LogicalTopology, OfTacclHasItsLinksAndRelays) {
  const LogicalTopology t = logical_topology(ndv2(), sketch(kNdv2Sketch));
  EXPECT_EQ(t.ranks, 16);
  EXPECT_EQ(t.links.size(), 2u * 32 + 2);  // NVLink pairs in both directions, one relay each way
  EXPECT_EQ(link(t, 0, 3).beta_us, 23);
  EXPECT_EQ(link(t, 8, 9).beta_us, 46);
  EXPECT_EQ(t.link(0, 5), -1);
  EXPECT_EQ(link(t, 0, 9).beta_us, 105);  // one sender, one receiver, one NIC
  EXPECT_EQ(link(t, 8, 1).alpha_us, 2.6);
  EXPECT_EQ(t.link(1, 8), -1);
}

TEST(LogicalTopology, OfTacclSplitsBetaOverTheNics) {
  // 8 * 8 pairs over one NIC; 16 pairs over 8 NICs; 8 pairs over 8 NICs.
  const std::string all = replaced(kNdv2Sketch, "{\"0\": [1]}", "\"fully-connected\"");
  EXPECT_EQ(link(logical_topology(ndv2(), read_sketch(all, "s")), 3, 12).beta_us, 105 * 64);
  const std::string direct = replaced(kNdv2Sketch, "{\"0\": [1]}", "\"direct-map\"");
  EXPECT_EQ(link(logical_topology(ndv2(), read_sketch(direct, "s")), 3, 11).beta_us, 105 * 8);
  EXPECT_EQ(link(logical_topology(dgx2(), sketch(kDgx2Sketch)), 1, 16).beta_us, 105);
}

TEST(LogicalTopology, OfTacclHasPortsAtSwitchesAndNicsBetweenMoreThanTwoHosts) {
  const LogicalTopology t = logical_topology(dgx2(), sketch(kDgx2Sketch));
  EXPECT_EQ(link(t, 0, 1).resources.size(), 2u);
  EXPECT_EQ(link(t, 0, 1).resources[0], link(t, 0, 5).resources[0]);
  EXPECT_EQ(link(t, 0, 1).resources[1], link(t, 7, 1).resources[1]);
  EXPECT_NE(link(t, 0, 1).resources[0], link(t, 1, 0).resources[1]);
  EXPECT_EQ(link(t, 1, 16).resources.size(), 1u);
  std::string three = replaced(kNdv2Sketch, "\"nnodes\": 2", "\"nnodes\": 3");
  three = replaced(three, "[8, 16]", "[8, 24]");
  const LogicalTopology n = logical_topology(ndv2(), read_sketch(three, "s"));
  EXPECT_EQ(link(n, 0, 9).resources[0], link(n, 0, 17).resources[0]);   // both leave by one NIC
  EXPECT_EQ(link(n, 0, 17).resources[1], link(n, 8, 17).resources[1]);  // both arrive by one NIC
}

TEST(LogicalTopology, TakesTheSameSwitchTwiceAsTwoPlanes) {
  const std::string list = "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]";
  std::string two = replaced(kDgx2Sketch, "[" + list + "]", "[" + list + "," + list + "]");
  two = replaced(two, "[\"uc-min\"]", "[\"uc-min\", \"uc-min\"]");
  EXPECT_EQ(link(logical_topology(dgx2(), read_sketch(two, "s")), 0, 1).beta_us, 4);
}

TEST(LogicalTopology, OfAMachineSharesWhatTheMachineShares) {
  const Machine machine = load_machine("ndv2x2");
  const LogicalTopology t = logical_topology(machine, sketch(kNdv2Sketch), 1e6);
  EXPECT_EQ(t.links.size(), 2u * 32 + 2);
  EXPECT_NEAR(link(t, 0, 3).beta_us, 20, 1e-9);  // 1 MB at 50 GB/s
  EXPECT_NEAR(link(t, 0, 9).beta_us, 80, 1e-9);  // 12.5 GB/s
  EXPECT_NEAR(link(t, 0, 9).alpha_us, 2.6, 1e-9);
  EXPECT_EQ(link(t, 0, 3).path.size(), 1u);
  const std::string all = replaced(kNdv2Sketch, "{\"0\": [1]}", "\"fully-connected\"");
  const LogicalTopology f = logical_topology(machine, read_sketch(all, "s"), 1e6);
  EXPECT_EQ(f.links.size(), 2u * 32 + 2 * 64);
  std::set<int32_t> shared(link(f, 0, 9).resources.begin(), link(f, 0, 9).resources.end());
  int both = 0;
  for (const int32_t r : link(f, 5, 12).resources) both += static_cast<int>(shared.count(r));
  EXPECT_EQ(both, 2);  // out of one NIC and into the other
}

TEST(LogicalTopology, LeavesOutLinksThatARelayBeats) {
  // GPUs without a common NVLink could use PCIe. The path through a neighbour is faster.
  Machine machine;
  for (int i = 0; i < 3; i++) machine.nodes.push_back({"g" + std::to_string(i), NodeType::kGpu});
  machine.nodes.push_back({"pcie", NodeType::kSwitch});
  connect(machine, 0, 1, LinkType::kNvlink, 25, 0.7);
  connect(machine, 1, 2, LinkType::kNvlink, 25, 0.7);
  for (int i = 0; i < 3; i++) connect(machine, i, 3, LinkType::kPcie, 6, 1);
  const LogicalTopology large = logical_topology(machine, sketch(kOneHostSketch), 1e6);
  EXPECT_EQ(large.link(0, 2), -1);
  EXPECT_GE(large.link(0, 1), 0);
  const LogicalTopology small = logical_topology(machine, sketch(kOneHostSketch), 100);
  EXPECT_EQ(small.link(0, 2), -1);  // 1.4 us over NVLink, 2 us over PCIe
  connect(machine, 0, 2, LinkType::kPcie, 6, 0.5);
  EXPECT_GE(logical_topology(machine, sketch(kOneHostSketch), 100).link(0, 2), 0);
}

TEST(LogicalTopology, RefusesWhatDoesNotFitTheMachine) {
  const Machine machine = load_machine("ndv2x2");
  EXPECT_EQ(refusal(load_machine("ndv2"), kNdv2Sketch),
            "sketch: nnodes is 2, but the machine has 1 host");
  EXPECT_EQ(refusal(machine, replaced(kNdv2Sketch, "{\"0\": [1]}", "{\"0\": [9]}")),
            "sketch: internode_sketch.internode_conn[\"0\"] names GPU 9, but hosts have GPUs 0 "
            "to 7");
  EXPECT_EQ(refusal(machine, replaced(kNdv2Sketch, "[8, 16]", "[1, 16]")),
            "sketch: symmetry_offsets[0] ([1, 16]) is no symmetry: link 0->1 would be like 1->2, "
            "which costs something else");
  EXPECT_EQ(refusal(machine, replaced(kNdv2Sketch, "[8, 16]", "[2, 8]")),
            "sketch: symmetry_offsets[0] ([2, 8]) is no symmetry: link 0->1 would be like 2->3, "
            "which costs something else");
  EXPECT_EQ(refusal(machine, replaced(kNdv2Sketch, "[8, 16]", "[1, 5]")),
            "sketch: symmetry_offsets[0] ([1, 5]): 16 ranks are not groups of 5");
  EXPECT_EQ(refusal(dgx2(), replaced(kDgx2Sketch, "[2, 16]", "[1, 16]")),
            "sketch: symmetry_offsets[0] ([1, 16]) is no symmetry: link 1->16 would be like 2->17, "
            "which does not exist");
  EXPECT_EQ(refusal(dgx2(), replaced(kDgx2Sketch, "\"1\":[0,1],", "\"1\":[1],")),
            "sketch: internode_sketch.gpus_to_sender_rev_map: nobody sends the data of GPU 0");
  Machine dead = machine;
  for (Link& l : dead.links)
    if (l.type == LinkType::kNetwork) l.gbps = 0;
  EXPECT_EQ(refusal(dead, kNdv2Sketch),
            "sketch: internode_sketch.internode_conn: the machine has no way from GPU 0 of host 0 "
            "to GPU 1 of host 1");
}

}  // namespace
}  // namespace weft::test
