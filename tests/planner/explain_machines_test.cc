// Golden answers of `weft explain --gpus`: which plan runs on a machine, on which ports and NICs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "algorithms/bounds/bounds.h"
#include "algorithms/catalogue/catalogue.h"
#include "src/planner/plan_facts.h"
#include "src/topology/graph/rank_machine.h"
#include "tests/planner/planned_machine.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;

constexpr CollectiveKind kAsked[] = {CollectiveKind::kAllReduce,     CollectiveKind::kAllGather,
                                     CollectiveKind::kReduceScatter, CollectiveKind::kBroadcast,
                                     CollectiveKind::kReduce,        CollectiveKind::kAllToAll};
constexpr uint64_t kMiB = 1 << 20;

// Up to 32 GPUs synthesis runs to its end, on busy machines too, so its schedules are always the
// same. Beyond this many only names are compared: lines would be long.
constexpr int kExact = 16;
constexpr size_t kMostNicNames = 32;

// Several tests look at the same machine.
const PlannedMachine& planned(const std::string& topo) {
  static std::map<std::string, std::unique_ptr<PlannedMachine>> all;
  std::unique_ptr<PlannedMachine>& one = all[topo];
  if (one == nullptr) {
    const Machine machine = load_machine(topo);
    one = std::make_unique<PlannedMachine>(machine, gpus(machine).size() <= 32 ? "240" : "0.9");
  }
  return *one;
}

std::string answers(const PlannedMachine& on) {
  std::string text;
  for (const CollectiveKind kind : kAsked)
    for (const uint64_t bytes : {uint64_t{8192}, kMiB, 256 * kMiB}) {
      const auto said = explain_call(on.explained(), kind, bytes);
      text += fmt::format("{:14} {:>5} {:28} {:10}", name(kind), size_text(bytes),
                          said["plan"].get<std::string>(), said["path"].get<std::string>());
      if (on.ranks() <= kExact)
        text += fmt::format(" {:>2} lanes, {} + {} + {} ports, {:>2} hops",
                            said["lanes"].get<int>(), said["ports"]["peer_memory"].get<int>(),
                            said["ports"]["host_memory"].get<int>(),
                            said["ports"]["network"].get<int>(), said["hops"].get<int>());
      std::string nics;
      for (const auto& nic : said["nics"]) nics += " " + nic.get<std::string>();
      if (said["nics"].size() > kMostNicNames) nics = fmt::format(" {}", said["nics"].size());
      text += nics.empty() ? "\n" : fmt::format(", NICs{}\n", nics);
    }
  return text;
}

// WEFT_UPDATE_EXPECTED=1 writes the file anew.
void expect_answers(const std::string& file, const PlannedMachine& on) {
  const fs::path path = fs::path(WEFT_TEST_EXPECTED) / (file + ".txt");
  const std::string text = answers(on);
  if (std::getenv("WEFT_UPDATE_EXPECTED") != nullptr) std::ofstream(path) << text;
  std::ostringstream expected;
  expected << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, expected.str()) << path;
}

TEST(ExplainMachines, SaysWhatRunsOnKnownMachines) {
  if (kSanitized) GTEST_SKIP() << "sanitized: searches find less in their time";
  for (const char* name : {"dgx-h100", "dgx1v", "dgx-h100x2", "pcie-8x-1nicx2", "gb200-nvl72"}) {
    SCOPED_TRACE(name);
    expect_answers(name, planned(name));
  }
}

// The schedule that explain_call() describes.
Schedule explained_schedule(const PlannedMachine& on, CollectiveKind kind, uint64_t bytes) {
  const Collective collective{kind, on.ranks(), 0};
  const Choice choice = on.chooser().choose(PlanCall::of_size(collective, bytes));
  if (choice.schedule == nullptr)
    return choice.generator->make_on(on.chooser().placement().hosts, collective, false);
  const auto& made = *choice.schedule;
  return (made.out_of_place != nullptr ? made.out_of_place : made.in_place)->schedule();
}

int node_of_rank(const Machine& machine, int rank) {
  return gpus(machine)[static_cast<size_t>(rank)];
}

bool has_nvlink(const Machine& machine, int rank, int peer) {
  const int from = node_of_rank(machine, rank), to = node_of_rank(machine, peer);
  return std::any_of(machine.links.begin(), machine.links.end(), [&](const Link& link) {
    return link.type == LinkType::kNvlink && link.from == from && link.to == to;
  });
}

// On a machine without NVSwitches: every port is an NVLink, and so is every route.
void expect_only_nvlinks(const PlannedMachine& on, CollectiveKind kind, uint64_t bytes) {
  SCOPED_TRACE(fmt::format("{} of {}", name(kind), size_text(bytes)));
  const auto said = explain_call(on.explained(), kind, bytes);
  EXPECT_GT(said["ports"]["peer_memory"].get<int>(), 0);
  EXPECT_EQ(said["ports"]["host_memory"].get<int>(), 0);
  EXPECT_EQ(said["ports"]["network"].get<int>(), 0);
  const Machine& machine = on.machine();
  const Schedule schedule = explained_schedule(on, kind, bytes);
  for (size_t r = 0; r < schedule.ranks.size(); r++)
    for (const Lane& lane : schedule.ranks[r].lanes)
      for (const Step& step : lane.steps)
        for (const Operand& to : step.to) {
          EXPECT_NE(to.kind, Operand::Kind::kRemote) << "not all pairs reach each other";
          if (to.kind == Operand::Kind::kPeer) {
            EXPECT_TRUE(has_nvlink(machine, static_cast<int>(r), to.index)) << r << to.index;
          }
        }
  for (const RouteHint& route : schedule.routes)
    for (const int32_t link : route.links) {
      ASSERT_LT(static_cast<size_t>(link), machine.links.size());
      EXPECT_EQ(machine.links[static_cast<size_t>(link)].type, LinkType::kNvlink);
    }
}

// Blocks of all pairs must arrive, so some pass other GPUs.
TEST(ExplainMachines, SendsOnlyOverNvlinksWherePairsLackThem) {
  const PlannedMachine& on = planned("dgx1v");
  int joined = 0;
  for (int a = 0; a < on.ranks(); a++)
    for (int b = 0; b < on.ranks(); b++) joined += has_nvlink(on.machine(), a, b) ? 1 : 0;
  EXPECT_EQ(joined, 32) << "of 56 pairs";
  for (const CollectiveKind kind : kAsked) expect_only_nvlinks(on, kind, 256 * kMiB);
}

TEST(ExplainMachines, DoesWithoutABrokenPair) {
  Machine machine = load_machine("dgx1v");
  const int a = node_of_rank(machine, 0), b = node_of_rank(machine, 3);
  std::erase_if(machine.links, [&](const Link& link) {
    return (link.from == a && link.to == b) || (link.from == b && link.to == a);
  });
  ASSERT_FALSE(has_nvlink(machine, 0, 3) || has_nvlink(machine, 3, 0));
  const PlannedMachine on(machine, "60");
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
        CollectiveKind::kBroadcast, CollectiveKind::kReduce})
    for (const uint64_t bytes : {uint64_t{8192}, 256 * kMiB}) expect_only_nvlinks(on, kind, bytes);
}

TEST(ExplainMachines, SaysWhatRunsOnAClusterWithABrokenNvlink) {
  const PlannedMachine& on = planned(std::string(WEFT_TEST_DATA) + "/machines/a100x4_broken.json");
  expect_answers("a100x4_broken", on);
  const auto said = explain_call(on.explained(), CollectiveKind::kAllReduce, 256 * kMiB);
  EXPECT_EQ(said["nics"].size(), 32u) << "all of them, and no host alone";
}

// The GPU keeps 11 of its 12 NVLinks. NICs limit, so that must not slow the cluster down.
TEST(ExplainMachines, LosesLittleByABrokenNvlink) {
  const PlannedMachine& on = planned(std::string(WEFT_TEST_DATA) + "/machines/a100x4_broken.json");
  const Machine whole = load_machine("dgx-a100x4");
  for (const CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kAllGather}) {
    const auto said = explain_call(on.explained(), kind, 256 * kMiB);
    SCOPED_TRACE(said.dump());
    EXPECT_EQ(said["ports"]["host_memory"].get<int>(), 0);
    const double gbps = throughput_bound(whole, {kind, on.ranks(), 0}).algbw_gbps;
    const double bound_us = 256 * kMiB / gbps * 1e-3;
    EXPECT_NEAR(said["bound_us"].get<double>() / bound_us, 1, 1e-3);
    EXPECT_LT(said["time_us"].get<double>(), 1.25 * bound_us);
    // Every route goes from GPU to GPU on links of this machine, inside hosts over NVLinks only.
    const Machine& machine = on.machine();
    for (const RouteHint& route : explained_schedule(on, kind, 256 * kMiB).routes) {
      int at = node_of_rank(machine, route.from);
      const int end = node_of_rank(machine, route.to);
      const bool inside = machine.nodes[static_cast<size_t>(at)].host ==
                          machine.nodes[static_cast<size_t>(end)].host;
      for (const int32_t number : route.links) {
        ASSERT_LT(static_cast<size_t>(number), machine.links.size());
        const Link& link = machine.links[static_cast<size_t>(number)];
        EXPECT_EQ(link.from, at);
        if (inside) {
          EXPECT_EQ(link.type, LinkType::kNvlink);
        }
        at = link.to;
      }
      if (!route.links.empty()) {
        EXPECT_EQ(at, end);
      }
    }
  }
}

TEST(ExplainMachines, SaysWhatRunsOnPublishedMachines) {
  if (!fs::exists(WEFT_SHARED_MACHINES)) GTEST_SKIP() << "there is no " << WEFT_SHARED_MACHINES;
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(WEFT_SHARED_MACHINES))
    if (entry.path().extension() == ".xml") files.push_back(entry.path());
  ASSERT_GT(files.size(), 5u);
  for (const fs::path& file : files) {
    SCOPED_TRACE(file);
    if (const size_t n = gpus(load_machine(file.string())).size(); n < 2) {
      std::printf("%s: %zu GPUs, nothing to plan\n", file.stem().c_str(), n);
      continue;
    }
    const PlannedMachine& on = planned(file.string());
    if (on.chooser().placement().lanes) {
      expect_answers("shared-" + file.stem().string(), on);
      continue;
    }
    // Messages pass through host memory there, and there are no ports and NICs to name.
    const std::string& why = on.chooser().agreed().table.via_host;
    EXPECT_FALSE(why.empty());
    std::printf("%s: no lanes, %s\n", file.stem().c_str(), why.c_str());
  }
}

// Where NICs limit, no byte crosses them more often than it must.
TEST(ExplainMachines, CrossesNarrowNetworksNoMoreThanTheBoundSays) {
  for (const char* name : {"pcie-8x-1nicx2", "ndv2x2"}) {
    SCOPED_TRACE(name);
    const PlannedMachine& on = planned(name);
    const double bytes = 256 * kMiB;
    // Every host needs what the other one has, and in an all_reduce both sums and results.
    for (const auto& [kind, least] : {std::pair{CollectiveKind::kAllGather, bytes},
                                      {CollectiveKind::kReduceScatter, bytes},
                                      {CollectiveKind::kAllReduce, 2 * bytes},
                                      {CollectiveKind::kBroadcast, bytes}}) {
      const auto said = explain_call(on.explained(), kind, 256 * kMiB);
      EXPECT_NEAR(said["network_bytes"].get<double>() / least, 1, 1e-6) << said.dump();
      EXPECT_EQ(said["nics"].size(), kind == CollectiveKind::kBroadcast ? 1u : 2u) << said.dump();
    }
  }
}

// Where NVLinks limit, a plan may cross the network more often than it must, to spare them. NICs
// must still be done by the time that the bound allows.
TEST(ExplainMachines, CrossesWideNetworksWithNoMoreThanTheyCarryInTime) {
  const PlannedMachine& on = planned("dgx-h100x2");
  double nics_gbps = 0;
  for (const int nic : nodes_of(on.machine(), NodeType::kNic))
    nics_gbps += on.machine().nodes[static_cast<size_t>(nic)].gbps;
  ASSERT_GT(nics_gbps, 0);
  const double least = 256 * kMiB;  // every host needs what the other one has
  for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
    const auto said = explain_call(on.explained(), kind, 256 * kMiB);
    SCOPED_TRACE(said.dump());
    const double bytes = said["network_bytes"].get<double>();
    EXPECT_GE(bytes / least, 1 - 1e-6);
    EXPECT_LE(bytes / nics_gbps * 1e-3, said["bound_us"].get<double>());
    EXPECT_LE(said["time_us"].get<double>(), 1.1 * said["bound_us"].get<double>());
    EXPECT_EQ(said["nics"].size(), 16u);
    if (kind == CollectiveKind::kAllGather) {
      EXPECT_NEAR(bytes / least, 1, 1e-6);
    }
  }
}

// NVLink joins all hosts of the rack, but kernels reach the memory of their own host only.
TEST(ExplainMachines, CrossesHostsOfARackOverTheirNics) {
  const PlannedMachine& on = planned("gb200-nvl72");
  const Machine ways = peer_ways(on.machine());
  for (const CollectiveKind kind : kAsked) {
    const auto said = explain_call(on.explained(), kind, 256 * kMiB);
    SCOPED_TRACE(said.dump());
    EXPECT_NE(said["note"].get<std::string>().find("NVLink between hosts is not used"),
              std::string::npos);
    EXPECT_GT(said["ports"]["network"].get<int>(), 0);
    EXPECT_GT(said["network_bytes"].get<double>(), 0);
    EXPECT_FALSE(said["nics"].empty());
    const double bound =
        256 * kMiB / throughput_bound(ways, {kind, on.ranks(), 0}).algbw_gbps * 1e-3;
    EXPECT_NEAR(said["bound_us"].get<double>() / bound, 1, 1e-3);
    // Every FIFO between hosts has a NIC at both ends.
    const PlanFacts facts = plan_facts(ways, explained_schedule(on, kind, 256 * kMiB));
    EXPECT_EQ(facts.nic_uses.size(), static_cast<size_t>(facts.network));
    for (const NicUse& use : facts.nic_uses) {
      EXPECT_NE(use.from / 4, use.to / 4) << "four GPUs a host";
      EXPECT_FALSE(use.sends.empty() || use.receives.empty()) << use.from << " to " << use.to;
    }
  }
  const auto said = explain_call(planned("dgx-h100x2").explained(), CollectiveKind::kAllReduce, 1);
  EXPECT_FALSE(said.contains("note"));
}

TEST(ExplainMachines, UsesTheNicBesideEachGpuAndCrossesNoRails) {
  const PlannedMachine& on = planned("dgx-h100x2");
  const auto said = explain_call(on.explained(), CollectiveKind::kAllReduce, 256 * kMiB);
  EXPECT_EQ(said["nics"].size(), 16u);
  const auto nics = nics_of_ranks(on.machine());
  for (int r = 0; r < 16; r++) {
    ASSERT_FALSE(nics[static_cast<size_t>(r)].empty());
    EXPECT_EQ(nics[static_cast<size_t>(r)][0], fmt::format("h{}.nic{}", r / 8, r % 8));
  }
}

}  // namespace
}  // namespace weft::test
