// Communicators of GPUs whose data goes through host memory, planned for machines of the catalogue.
// CPUs that reduce win on some machines and lose on others.
#include "src/planner/via_host.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "algorithms/catalogue/catalogue.h"
#include "algorithms/generators/generators.h"
#include "src/exec/cuda/host_fifo_fit.h"
#include "src/planner/init_plans.h"
#include "src/planner/rates_file.h"
#include "src/schedule/program.h"

namespace weft::test {
namespace {

constexpr auto kSum = CollectiveKind::kAllReduce;
constexpr uint64_t kMuch = 64 << 20;
constexpr const char* kDisabled = "NCCL_P2P_DISABLE is set";

// Plans as rank 0 does for one GPU per rank. `ids` are bus ids of the GPUs.
SelectionTable plan_for(const Machine& machine, int ranks, const char* via_host = "",
                        int cores = 64, std::vector<std::string> ids = {},
                        const std::string& cache = "") {
  Config config = Config::from_environment();
  config.cache = cache;
  HostSetting setting;
  setting.cores = cores;
  return make_init_plans({config, ranks, true, setting, machine, 1,
                          [](const ImportedSchedule&) { return true; }, 0, std::move(ids), via_host,
                          unfit_for_host_fifos})
      .table;
}
SelectionTable plan_for(const std::string& name, const char* via_host = "", int cores = 64) {
  const Machine machine = load_machine(name);
  return plan_for(machine, static_cast<int>(gpus(machine).size()), via_host, cores);
}

const PlanOption* option_of(const SelectionTable& table, std::string_view name) {
  for (const PlanOption& option : table.options)
    if (option.kind == kSum && option.name == name) return &option;
  return nullptr;
}

std::string chosen_at(const SelectionTable& table, uint64_t bytes = kMuch) {
  const PlanOption* option = table.choose(kSum, bytes, false);
  return option != nullptr ? option->name : "by rules";
}

TEST(ViaHost, LetsCpusReduceWhereGpusShareTheirWayToTheHostBridge) {
  // Each socket has four GPUs behind one link. GPUs that reach each other do not use it.
  for (const SelectionTable& table : {plan_for("rtx4090-8x"), plan_for("pcie-8x", kDisabled)}) {
    EXPECT_FALSE(table.advisory);
    EXPECT_FALSE(table.via_host.empty());
    EXPECT_EQ(chosen_at(table), "cpu_pair");
    for (const char* loser : {"ring", "direct", "tree", "cpu_reduce"}) {
      ASSERT_NE(option_of(table, loser), nullptr);
      EXPECT_GT(SelectionTable::estimate(*option_of(table, loser), kMuch),
                SelectionTable::estimate(*option_of(table, "cpu_pair"), kMuch))
          << loser;
      EXPECT_NE(describe_ranges(table, kSum).find(loser), std::string::npos);
    }
    EXPECT_EQ(chosen_at(table, 256).find("cpu"), std::string::npos)
        << "a thread must wake up first";
  }
}

// A kernel does that without the many instructions of the interpreter.
TEST(ViaHost, PrefersASingleExchangeOfSmallMessages) {
  const SelectionTable table = plan_for("pcie-4x", kDisabled);
  EXPECT_EQ(chosen_at(table, 8192), "one_shot");
  for (const auto kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
                          CollectiveKind::kAllToAll, CollectiveKind::kBroadcast}) {
    EXPECT_EQ(table.choose(kind, 8192, false)->name, "one_round") << name(kind);
    EXPECT_NE(table.choose(kind, kMuch, false)->name, "one_round") << name(kind);
  }
  const PlanOption& one_shot = *option_of(table, "one_shot");
  EXPECT_LT(SelectionTable::estimate(one_shot, kMostOneRoundBytes),
            0.7 * SelectionTable::estimate(one_shot, 2 * kMostOneRoundBytes));
}

TEST(ViaHost, LeavesItToGpusWhereEachHasALinkOfItsOwn) {
  const SelectionTable table = plan_for("rtx4090-4x");
  EXPECT_EQ(chosen_at(table), "direct");
  ASSERT_NE(option_of(table, "cpu_reduce"), nullptr);
  EXPECT_EQ(option_of(table, "cpu_reduce")->barred, "") << "it loses by its time";
  EXPECT_NE(describe_options(table, kSum, kMuch, nullptr).find("cpu_reduce"), std::string::npos);
}

// Eight GPUs in PCIe slots of two sockets. They reach each other over the host bridges.
Machine slots(double between_sockets) {
  Machine machine = load_machine("l20-8x");
  for (Node& node : machine.nodes) node.facts.erase("p2p");
  for (Link& link : machine.links)
    if (link.type == LinkType::kSocket) link.gbps = between_sockets;
  return machine;
}

// CPU nodes compete with the GPUs' own plans. What counts is the time.
TEST(ViaHost, IsAPlanAmongOthersForGpusThatReachEachOtherOverTheHostBridge) {
  const SelectionTable narrow = plan_for(slots(1), 8), wide = plan_for(slots(200), 8);
  for (const SelectionTable* table : {&narrow, &wide}) {
    EXPECT_FALSE(table->advisory);
    EXPECT_EQ(table->via_host, "");
    ASSERT_NE(option_of(*table, "cpu_pair"), nullptr);
    EXPECT_EQ(option_of(*table, "cpu_pair")->path, PlanPath::kFifos);
    EXPECT_EQ(option_of(*table, "peer_memory"), nullptr) << "nothing reaches across a CPU";
    const PlanOption* chosen = table->choose(kSum, kMuch, false);
    for (const PlanOption& option : table->options)
      if (option.kind == kSum && option.barred.empty() && !option.us.empty()) {
        EXPECT_GT(SelectionTable::estimate(option, kMuch) * 1.05,
                  SelectionTable::estimate(*chosen, kMuch))
            << option.name << " beats " << chosen->name;
      }
  }
  // The plan also knows the time of the links: 112 MiB in and out of each GPU at 24 GB/s.
  EXPECT_GT(SelectionTable::estimate(*wide.choose(kSum, kMuch, false), kMuch), 4800);
  EXPECT_GT(SelectionTable::estimate(*narrow.choose(kSum, kMuch, false), kMuch),
            5 * SelectionTable::estimate(*wide.choose(kSum, kMuch, false), kMuch));
}

TEST(ViaHost, IsNotForGpusThatReachEachOther) {
  for (const char* name : {"pcie-8x", "pcie-4x", "dgx1v", "dgx-a100", "hgx-h200"}) {
    const SelectionTable table = plan_for(name);
    EXPECT_FALSE(table.advisory) << name;
    EXPECT_EQ(table.via_host, "") << name;
    EXPECT_EQ(option_of(table, "cpu_reduce"), nullptr) << name;
  }
}

TEST(ViaHost, AsksHowFastTheCpusAre) {
  const Machine machine = load_machine("rtx4090-8x");
  EXPECT_NE(chosen_at(plan_for(machine, 8, "", 2)), "cpu_pair") << "a core for each node";
  Config config;
  config.cache = testing::TempDir() + "weft_staging." + std::to_string(getpid());
  Calibration calibration;
  calibration.measured = "measured by a test";
  calibration.rates[kThreadRates].reduce_mid_us_mb = 900;
  save_rates(config, calibration);
  const SelectionTable slow = plan_for(machine, 8, "", 64, {}, config.cache);
  std::filesystem::remove_all(config.cache);
  EXPECT_NE(slow.origin.find("measured by a test"), std::string::npos) << slow.origin;
  EXPECT_NE(chosen_at(slow), "cpu_pair");
  EXPECT_GT(SelectionTable::estimate(*option_of(slow, "cpu_pair"), kMuch),
            3 * SelectionTable::estimate(*option_of(plan_for("rtx4090-8x"), "cpu_pair"), kMuch));
}

TEST(ViaHost, KnowsWhichRanksShareAGpu) {
  Machine machine = load_machine("rtx4090-4x");
  std::vector<std::string> ids;
  for (const int gpu : gpus(machine)) {
    ids.push_back("0000:0" + std::to_string(gpu) + ":00.0");
    machine.nodes[static_cast<size_t>(gpu)].pci = ids.back();
  }
  const auto us = [&](const std::vector<std::string>& of) {
    return SelectionTable::estimate(*option_of(plan_for(machine, 4, kDisabled, 64, of), "direct"),
                                    kMuch);
  };
  EXPECT_NEAR(us({ids[3], ids[1], ids[0], ids[2]}) / us(ids), 1, 0.01);
  // The data of all four ranks goes over one link.
  EXPECT_GT(us({ids[2], ids[2], ids[2], ids[2]}), 2 * us(ids));
  // There is no peer-to-peer access, but none is needed.
  EXPECT_EQ(plan_for(machine, 4, "", 64, {ids[2], ids[2], ids[2], ids[2]}).via_host, "");
  EXPECT_NE(plan_for(machine, 4, "", 64, {ids[2], ids[2], ids[2], ids[1]}).via_host, "");
  // Rank 0 does not see this GPU, so it cannot predict.
  EXPECT_TRUE(
      plan_for(machine, 4, kDisabled, 64, {ids[0], ids[1], ids[2], "0000:77:00.0"}).advisory);
}

TEST(ViaHost, GoesThroughHostMemoryBesideNvlinkToo) {
  const SelectionTable table = plan_for("hgx-h200", kDisabled);
  ASSERT_NE(option_of(table, "ring"), nullptr);
  // 64 MiB go over PCIe, not over NVLink.
  EXPECT_GT(SelectionTable::estimate(*option_of(table, "direct"), kMuch), 1000);
}

TEST(ViaHost, PlansOnlyWhatAKernelCanRun) {
  const Collective many{CollectiveKind::kReduceScatter, 32, 0};
  EXPECT_NE(unfit_for_host_fifos(kCpuReduce.make(many, false)), "") << "33 ranks and CPU nodes";
  EXPECT_NE(unfit_for_host_fifos(kRecursive.make({CollectiveKind::kReduceScatter, 8, 0}, false)),
            "");
  EXPECT_EQ(unfit_for_host_fifos(kDirect.make({kSum, 32, 0}, false)), "");
  EXPECT_EQ(unfit_for_host_fifos(kCpuPair.make({CollectiveKind::kReduceScatter, 30, 0}, false)),
            "");
  // Eight lanes of each of nine ranks would share a GPU.
  Machine machine = load_machine("rtx4090-4x");
  const std::string id = "0000:01:00.0";
  machine.nodes[static_cast<size_t>(gpus(machine)[0])].pci = id;
  const SelectionTable table = plan_for(machine, 9, kDisabled, 64, std::vector<std::string>(9, id));
  EXPECT_NE(option_of(table, "cpu_reduce")->barred, "");
  EXPECT_EQ(
      option_of(plan_for(machine, 8, kDisabled, 64, std::vector<std::string>(8, id)), "cpu_reduce")
          ->barred,
      "");
}

TEST(ViaHost, ComesBackFromTheTablesText) {
  const SelectionTable table = plan_for("rtx4090-4x");
  EXPECT_EQ(SelectionTable::decode(table.encode()), table);
}

}  // namespace
}  // namespace weft::test
