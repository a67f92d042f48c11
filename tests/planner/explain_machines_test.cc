// Golden answers of `weft explain --gpus`: which plan runs on a machine, on which ports and NICs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "algorithms/catalogue/catalogue.h"
#include "src/planner/plan_facts.h"
#include "tests/planner/planned_machine.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;

constexpr CollectiveKind kAsked[] = {CollectiveKind::kAllReduce,     CollectiveKind::kAllGather,
                                     CollectiveKind::kReduceScatter, CollectiveKind::kBroadcast,
                                     CollectiveKind::kReduce,        CollectiveKind::kAllToAll};
constexpr uint64_t kMiB = 1 << 20;

// Up to 32 GPUs synthesis runs to its end, so its schedules are always the same. Beyond this many
// only names are compared: lines would be long.
constexpr int kExact = 16;

PlannedMachine planned(const std::string& topo) {
  const Machine machine = load_machine(topo);
  return {machine, gpus(machine).size() <= 32 ? "60" : "0.9"};
}

std::string answers(const PlannedMachine& on) {
  std::string text;
  for (const CollectiveKind kind : kAsked)
    for (const uint64_t bytes : {uint64_t{8192}, kMiB, 256 * kMiB}) {
      const auto said = explain_call(on.explained(), kind, bytes);
      text += fmt::format("{:14} {:>5} {:28} {:10}", name(kind), size_text(bytes),
                          said["plan"].get<std::string>(), said["path"].get<std::string>());
      if (on.ranks() <= kExact)
        text += fmt::format(" {:>2} lanes, {} + {} + {} ports", said["lanes"].get<int>(),
                            said["ports"]["peer_memory"].get<int>(),
                            said["ports"]["host_memory"].get<int>(),
                            said["ports"]["network"].get<int>());
      std::string nics;
      for (const auto& nic : said["nics"]) nics += " " + nic.get<std::string>();
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

TEST(ExplainMachines, SaysWhatRunsOnAClusterWithABrokenNvlink) {
  const PlannedMachine on = planned(std::string(WEFT_TEST_DATA) + "/machines/a100x4_broken.json");
  expect_answers("a100x4_broken", on);
  const auto said = explain_call(on.explained(), CollectiveKind::kAllReduce, 256 * kMiB);
  EXPECT_EQ(said["nics"].size(), 32u) << "all of them, and no host alone";
}

TEST(ExplainMachines, SaysWhatRunsOnPublishedMachines) {
  if (!fs::exists(WEFT_SHARED_MACHINES)) GTEST_SKIP() << "there is no " << WEFT_SHARED_MACHINES;
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(WEFT_SHARED_MACHINES))
    if (entry.path().extension() == ".xml") files.push_back(entry.path());
  ASSERT_GT(files.size(), 5u);
  for (const fs::path& file : files) {
    SCOPED_TRACE(file);
    if (gpus(load_machine(file.string())).size() < 2) continue;
    const PlannedMachine on = planned(file.string());
    if (on.chooser().placement().lanes) expect_answers("shared-" + file.stem().string(), on);
  }
}

// Where NICs limit, no byte crosses them more often than it must.
TEST(ExplainMachines, CrossesNarrowNetworksNoMoreThanTheBoundSays) {
  for (const char* name : {"pcie-8x-1nicx2", "ndv2x2"}) {
    SCOPED_TRACE(name);
    const PlannedMachine on = planned(name);
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

TEST(ExplainMachines, UsesTheNicBesideEachGpuAndCrossesNoRails) {
  const PlannedMachine on = planned("dgx-h100x2");
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
