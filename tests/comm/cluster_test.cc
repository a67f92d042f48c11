// How rank 0 joins what ranks say of their hosts, also where they contradict each other.
#include "src/comm/cluster.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "algorithms/catalogue/catalogue.h"
#include "src/base/error.h"
#include "src/topology/formats/machine_json.h"
#include "src/topology/graph/rank_machine.h"

namespace weft::test {
namespace {

PeerInfo rank_of(uint64_t host, uint64_t view) {
  PeerInfo info;
  info.host = host;
  info.view = view;
  return info;
}

// As describe_host().
std::string report(const Machine& machine, int cores = 8) {
  return std::to_string(cores) + "\t25\n" + machine_to_json(machine);
}

// A host of the catalogue, of which only some GPUs are seen. GPUs have bus ids.
Machine seen(std::initializer_list<int> shown) {
  Machine machine = load_machine("pcie-4x");
  std::vector<int> some;
  const std::vector<int> all = gpus(machine);
  for (size_t i = 0; i < all.size(); i++)
    machine.nodes[static_cast<size_t>(all[i])].pci = "0000:0" + std::to_string(i) + ":00.0";
  for (const int i : shown) some.push_back(all[static_cast<size_t>(i)]);
  return reduce_to(machine, some);
}

bool notes_say(const Cluster& cluster, const std::string& text) {
  return std::any_of(cluster.machine.notes.begin(), cluster.machine.notes.end(),
                     [&](const std::string& note) { return note.find(text) != std::string::npos; });
}

TEST(Cluster, IsDescribedByOneRankPerHostAndView) {
  const std::vector<PeerInfo> infos = {rank_of(7, 1), rank_of(9, 1), rank_of(7, 1),
                                       rank_of(7, 2), rank_of(9, 1), rank_of(7, 2)};
  EXPECT_EQ(host_numbers(infos), (std::vector<int>{0, 1, 0, 0, 1, 0}));
  EXPECT_EQ(host_speakers(infos), (std::vector<int>{0, 1, 3}));
}

TEST(Cluster, HasTheGpusThatAnyProcessOfAHostSees) {
  const std::vector<PeerInfo> infos = {rank_of(7, 1), rank_of(7, 2), rank_of(7, 2)};
  const Cluster cluster = merge_hosts(infos, {report(seen({0, 1})), report(seen({2})), ""});
  ASSERT_EQ(cluster.hosts.size(), 1u);
  EXPECT_EQ(cluster.hosts[0].cores, 8);
  EXPECT_EQ(gpus(cluster.machine).size(), 3u);
  EXPECT_TRUE(notes_say(cluster, "processes see different devices of this host: 3 GPUs together"));
  EXPECT_FALSE(notes_say(cluster, kOtherLinks));
}

TEST(Cluster, GoesByTheFirstProcessWhereOthersSeeOtherLinks) {
  const std::vector<PeerInfo> infos = {rank_of(7, 1), rank_of(7, 2)};
  const Machine first = seen({0, 1});
  EXPECT_FALSE(notes_say(merge_hosts(infos, {report(first), report(first)}), kOtherLinks));
  Machine slower = first, fewer = first;
  slower.links[0].gbps /= 2;
  fewer.links.pop_back();
  for (const Machine& second : {slower, fewer}) {
    const Cluster cluster = merge_hosts(infos, {report(first), report(second)});
    EXPECT_EQ(cluster.machine.links, merge_hosts({infos[0]}, {report(first)}).machine.links);
    EXPECT_TRUE(notes_say(cluster, kOtherLinks));
    EXPECT_FALSE(notes_say(cluster, "different devices"));
  }
}

TEST(Cluster, JoinsHostsThatDiffer) {
  const std::vector<PeerInfo> infos = {rank_of(7, 1), rank_of(9, 1), rank_of(9, 2)};
  const Cluster cluster =
      merge_hosts(infos, {report(load_machine("ndv2")), report(seen({0}), 2), report(seen({3}))});
  ASSERT_EQ(cluster.hosts.size(), 2u);
  EXPECT_EQ(cluster.hosts[1].cores, 2);
  EXPECT_EQ(gpus(cluster.machine).size(), 10u);
  EXPECT_EQ(count_hosts(cluster.machine), 2);
}

// Rank 0 tells all ranks the text (AgreementTest).
TEST(Cluster, RefusesADescriptionThatIsNotOneAndNamesTheRank) {
  const std::vector<PeerInfo> infos = {rank_of(7, 1), rank_of(9, 1)};
  const std::string good = report(seen({0, 1}));
  std::vector<std::string> bad = {"",         "\n",        "8",
                                  "8\t25",    "8\t25\n",   "8\t25\n{}",
                                  "x" + good, "8\t25\n[]", "8\t25\n{\"nodes\": 3}"};
  for (const double share : {0.3, 0.6, 0.9})
    bad.push_back(good.substr(0, static_cast<size_t>(share * static_cast<double>(good.size()))));
  for (const std::string& text : bad) {
    SCOPED_TRACE(text);
    try {
      merge_hosts(infos, {good, text});
      ADD_FAILURE() << "it is taken";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace weft::test
