// The one choice of a plan: what launches, estimates, weft explain and weftPlanOf() all get.
#include "src/planner/plan_chooser.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "algorithms/catalogue/catalogue.h"
#include "include/weft.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/exec/cuda/host_fifo_fit.h"
#include "src/planner/compression.h"
#include "src/planner/rates_file.h"
#include "tests/support/case.h"
#include "tests/support/environment.h"
#include "tests/support/log_file.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

constexpr auto kReduceAll = CollectiveKind::kAllReduce;
constexpr int kEight = 8;
constexpr size_t kTiny = 1 << 10, kHuge = 4 << 20;

std::shared_ptr<const ImportedSchedules> nothing_imported() {
  return std::make_shared<const ImportedSchedules>();
}

// A ring for small arrays, as a user would hand it in.
std::shared_ptr<const ImportedSchedules> imported_ring() {
  ScheduleFile file;
  file.schedule = kRing.make({kReduceAll, kEight, 0}, false);
  file.max_bytes = kTiny;
  return ImportedSchedules::only(file, "small-ring.json");
}

CommunicatorPlans plans_of_gpus(const char* machine_name, const char* via_host = "",
                                const Config& config = {}) {
  HostSetting setting;
  setting.cores = 64;
  const Machine machine = load_machine(machine_name);
  return make_init_plans({config,
                          kEight,
                          true,
                          setting,
                          machine,
                          1,
                          [](const ImportedSchedule&) { return true; },
                          0,
                          {},
                          via_host,
                          unfit_for_host_fifos});
}

PlanCall call_of_size(size_t bytes) { return PlanCall::of_size({kReduceAll, kEight, 0}, bytes); }

// GPUs that reach each other.
struct OnGpus {
  explicit OnGpus(const Config& config = {}, const PlanChooser::CopyTest& copies = {},
                  std::shared_ptr<const ImportedSchedules> imported = nothing_imported())
      : chooser(config, 0, "test", std::move(imported)) {
    chooser.agree(plans_of_gpus("dgx-h100", "", config));
    weft::Placement placement;
    placement.peer_memory = placement.lanes = true;
    chooser.place(placement, copies);
  }
  PlanChooser chooser;
};

TEST(PlanChooser, TakesPacketsForLittleDataAndPeerMemoryForMuch) {
  const OnGpus gpus;
  const Choice little = gpus.chooser.choose(call_of_size(kTiny));
  EXPECT_EQ(little.path, PlanPath::kPackets);
  EXPECT_STREQ(little.name, "one_shot");
  const Choice much = gpus.chooser.choose(call_of_size(kHuge));
  EXPECT_EQ(much.path, PlanPath::kLoadStore);
  EXPECT_STREQ(much.name, "peer_memory");
}

// What planning warns of.
std::string warnings_of(const Config& config, const Machine& machine, int ranks, int hosts) {
  const LogFile file("planning", log::reset);
  HostSetting setting;
  setting.cores = 64;
  for (int r = 0; hosts > 1 && r < ranks; r++) setting.hosts.push_back(r * hosts / ranks);
  make_init_plans({config,
                   ranks,
                   true,
                   setting,
                   machine,
                   hosts,
                   [](const ImportedSchedule&) { return true; },
                   0,
                   {},
                   "",
                   unfit_for_host_fifos,
                   hosts < ranks});
  return file.text();
}

TEST(InitPlans, WarnOfSettingsThatDoNothingHere) {
  const Machine box = load_machine("dgx-h100"), pair = load_machine("ndv2x2"),
                many = load_machine("dgx-h100x17");
  Config config;
  config.cache.clear();
  config.synthesis_seconds = 0;
  EXPECT_EQ(warnings_of(config, pair, 2, 2), "");
  config.algo = "tree";
  EXPECT_EQ(warnings_of(config, box, kEight, 1), "") << "the table obeys";
  EXPECT_NE(warnings_of(config, box, 2 * kEight, 1)
                .find("NCCL_ALGO has no effect between ranks that share a GPU"),
            std::string::npos);
  EXPECT_NE(warnings_of(config, pair, 2, 2)
                .find("NCCL_ALGO has no effect between these GPUs of several hosts"),
            std::string::npos);
  EXPECT_NE(
      warnings_of(config, many, 136, 17).find("NCCL_ALGO has no effect with more than 128 ranks"),
      std::string::npos);
  config.algo.clear();
  config.tuner_plugin = "some";
  EXPECT_NE(warnings_of(config, pair, 2, 2).find("NCCL_TUNER_PLUGIN has no effect"),
            std::string::npos);
  config.tuner_plugin.reset();
  config.proto = "Simple";
  EXPECT_EQ(warnings_of(config, box, kEight, 1), "") << "there are no packets then";
  config.proto = "LL,LL128";
  EXPECT_NE(warnings_of(config, box, kEight, 1).find("NCCL_PROTO without Simple has no effect"),
            std::string::npos);
}

// A tuner and NCCL_ALGO change no choice that is not the table's.
TEST(PlanChooser, GoesByRulesBetweenGpusThatHaveAHostEach) {
  const Machine pair = load_machine("ndv2x2");
  HostSetting setting;
  setting.cores = 64;
  setting.hosts = {0, 1};
  Config config;
  config.cache.clear();
  InitPlansRequest request{config,
                           2,
                           true,
                           setting,
                           pair,
                           2,
                           [](const ImportedSchedule&) { return true; },
                           0,
                           {},
                           "",
                           unfit_for_host_fifos};
  for (const bool lanes : {false, true}) {
    request.net_lanes = lanes;  // WEFT_NET_LANES=2
    PlanChooser chooser(config, 0, "test", nothing_imported());
    chooser.agree(make_init_plans(request));
    weft::Placement placement;
    placement.one_host = false;
    placement.lanes = lanes;
    placement.via_host = !lanes;
    chooser.place(placement);
    EXPECT_EQ(chooser.goes_by_rules(), !lanes);
    EXPECT_EQ(why_rules_decide(chooser.agreed().table, 2, 2).empty(), lanes);
  }
}

TEST(PlanChooser, EstimatesThePlanThatItChooses) {
  const OnGpus gpus;
  for (const size_t bytes : {kTiny, kHuge}) {
    const Choice choice = gpus.chooser.choose(call_of_size(bytes));
    const PlanOption* option = gpus.chooser.option_of(choice, kReduceAll);
    ASSERT_NE(option, nullptr) << choice.name;
    EXPECT_EQ(option->name, bytes == kTiny ? "one_shot" : "peer_memory");
    EXPECT_GT(gpus.chooser.estimate_us(call_of_size(bytes)), 0);
    EXPECT_EQ(gpus.chooser.estimate_us(call_of_size(bytes)),
              SelectionTable::estimate(*option, static_cast<double>(bytes)));
  }
}

TEST(PlanChooser, SaysSoWhereCopyEnginesMoveTheData) {
  const OnGpus gpus({}, [](CollectiveKind, size_t bytes) { return bytes >= kHuge; });
  EXPECT_EQ(gpus.chooser.choose(call_of_size(kHuge)).path, PlanPath::kCopyEngines);
  EXPECT_STREQ(gpus.chooser.choose(call_of_size(kHuge)).name, "copy_engines");
  EXPECT_EQ(gpus.chooser.estimate_us(call_of_size(kHuge)), 0) << "nobody has measured that";
  EXPECT_EQ(gpus.chooser.choose(call_of_size(kTiny)).path, PlanPath::kPackets);
}

TEST(PlanChooser, FollowsWhatIsForced) {
  OnGpus gpus;
  gpus.chooser.force(kReduceAll, &kRing);
  EXPECT_STREQ(gpus.chooser.choose(call_of_size(kHuge)).name, "ring");
  gpus.chooser.force(kReduceAll, nullptr);
  EXPECT_STREQ(gpus.chooser.choose(call_of_size(kHuge)).name, "peer_memory");
  Config config;
  config.plan = "all_reduce=tree";
  EXPECT_STREQ(OnGpus(config).chooser.choose(call_of_size(kHuge)).name, "tree");
}

// Callers remember choices. See PreparedCalls.
TEST(PlanChooser, SaysWhenItMayChooseOtherwiseThanBefore) {
  OnGpus gpus;
  PlanChooser& chooser = gpus.chooser;
  uint64_t before = chooser.changes();
  const auto changed = [&] {
    return std::exchange(before, chooser.changes()) != chooser.changes();
  };
  chooser.choose(call_of_size(kTiny));
  EXPECT_FALSE(changed());
  chooser.force(kReduceAll, &kRing);
  EXPECT_TRUE(changed());
  chooser.compress(nullptr);
  EXPECT_TRUE(changed());
  chooser.help(nullptr, 0);
  EXPECT_TRUE(changed());
  chooser.place(weft::Placement{});
  EXPECT_TRUE(changed());
}

TEST(PlanChooser, RefusesAForcedPlanThatCannotRun) {
  OnGpus gpus;
  gpus.chooser.force(kReduceAll, &kCpuReduce);
  EXPECT_THROW(gpus.chooser.choose(call_of_size(kHuge)), Error);
}

TEST(PlanChooser, KeepsCpuNodesOutOfGraphs) {
  PlanChooser chooser({}, 0, "test", nothing_imported());
  chooser.agree(plans_of_gpus("pcie-8x", "NCCL_P2P_DISABLE is set"));
  chooser.set_cpu_nodes(chooser.most_cpu_nodes(true));
  weft::Placement placement;
  placement.via_host = true;
  chooser.place(placement);
  PlanCall call = call_of_size(kHuge);
  ASSERT_STREQ(chooser.choose(call).name, "cpu_pair");
  call.captured = true;
  EXPECT_EQ(chooser.choose(call).generator->cpu_nodes, 0) << chooser.choose(call).name;
}

TEST(PlanChooser, PrefersAnImportedScheduleForTheCallsItIsFor) {
  PlanChooser chooser({}, 0, "test", imported_ring());
  chooser.place({});
  EXPECT_NE(chooser.choose(call_of_size(kTiny)).schedule, nullptr);
  EXPECT_STREQ(chooser.choose(call_of_size(kTiny)).name, "small-ring.json");
  EXPECT_EQ(chooser.choose(call_of_size(kHuge)).schedule, nullptr) << "it is for smaller arrays";
  chooser.force(kReduceAll, &kTree);
  EXPECT_STREQ(chooser.choose(call_of_size(kTiny)).name, "tree") << "a forced plan goes first";
  chooser.force(kReduceAll, nullptr);
  chooser.exclude(*chooser.imported().all()[0], "it does not fit");
  EXPECT_EQ(chooser.choose(call_of_size(kTiny)).schedule, nullptr);
}

TEST(PlanChooser, RunsImportedSchedulesAsLanesOnGpus) {
  OnGpus gpus({}, {}, imported_ring());
  const Choice little = gpus.chooser.choose(call_of_size(kTiny));
  EXPECT_STREQ(little.name, "small-ring.json");
  EXPECT_EQ(little.path, PlanPath::kLanes);
  EXPECT_STREQ(gpus.chooser.choose(call_of_size(kHuge)).name, "peer_memory");
  gpus.chooser.force(kReduceAll, &kOneShot);
  EXPECT_STREQ(gpus.chooser.choose(call_of_size(kTiny)).name, "one_shot");
}

// GPUs of one host, some pairs of which have no access.
struct WithoutAccess : OnGpus {
  explicit WithoutAccess(const Config& config = {},
                         std::shared_ptr<const ImportedSchedules> imported = nothing_imported())
      : OnGpus(config, {}, std::move(imported)) {
    weft::Placement placement;
    placement.lanes = true;
    chooser.place(placement);
  }
};

TEST(PlanChooser, RunsMessagesAsLanesWhereSomeGpusHaveNoAccess) {
  WithoutAccess gpus({}, imported_ring());
  EXPECT_STREQ(gpus.chooser.choose(call_of_size(kTiny)).name, "small-ring.json");
  for (const size_t bytes : {kTiny, 2 * kTiny, kHuge}) {
    const Choice choice = gpus.chooser.choose(call_of_size(bytes));
    EXPECT_EQ(choice.path, PlanPath::kLanes);
    EXPECT_FALSE(choice.generator != nullptr && choice.generator->peer_memory) << choice.name;
  }
  gpus.chooser.force(kReduceAll, &kTree);
  EXPECT_STREQ(gpus.chooser.choose(call_of_size(kTiny)).name, "tree");
  EXPECT_EQ(gpus.chooser.choose(call_of_size(kTiny)).path, PlanPath::kLanes);
  gpus.chooser.force(kReduceAll, &kPeerMemory);
  EXPECT_THROW(gpus.chooser.choose(call_of_size(kHuge)), Error);
}

// Four GPUs alone on their hosts. `compresses`: all_reduce, as int8.
struct AloneOnHosts {
  explicit AloneOnHosts(bool compresses) : chooser({}, 0, "test", nothing_imported()) {
    weft::Placement placement;
    placement.one_host = false;
    placement.via_host = placement.multi_connection = true;
    placement.coded_lanes = compresses;
    chooser.place(placement);
    if (compresses)
      chooser.compress(std::make_shared<const CompressedPlans>(
          CompressionSettings::parse("all_reduce=int8"), RankHomes{{0, 1, 2, 3}, {0, 1, 2, 3}},
          false, false));
  }
  Choice choose(CollectiveKind kind, size_t bytes,
                PlanCall::Numbers numbers = PlanCall::Numbers::kFloatSums) const {
    PlanCall call = PlanCall::of_size({kind, 4, 0}, bytes);
    call.numbers = numbers;
    return chooser.choose(call);
  }
  PlanChooser chooser;
};

TEST(PlanChooser, RunsCompressedCallsAsLanesAndOthersAsWithoutCompression) {
  const AloneOnHosts with(true), without(false);
  const Choice coded = with.choose(kReduceAll, kHuge);
  EXPECT_NE(coded.compression, nullptr);
  EXPECT_EQ(coded.path, PlanPath::kLanes);
  const auto same = [&](CollectiveKind kind, size_t bytes, PlanCall::Numbers numbers) {
    const Choice a = with.choose(kind, bytes, numbers), b = without.choose(kind, bytes, numbers);
    EXPECT_EQ(a.path, PlanPath::kFifos) << name(kind) << " of " << bytes;
    EXPECT_EQ(b.path, PlanPath::kFifos) << name(kind) << " of " << bytes;
    EXPECT_EQ(a.generator, b.generator) << name(kind) << " of " << bytes;
    EXPECT_EQ(a.compression, nullptr);
  };
  same(kReduceAll, kTiny, PlanCall::Numbers::kFloatSums);
  same(kReduceAll, kHuge, PlanCall::Numbers::kOtherTypes);
  same(kReduceAll, kHuge, PlanCall::Numbers::kOtherOperators);
  for (int kind = 0; kind < kCollectiveKinds; kind++)
    if (static_cast<CollectiveKind>(kind) != kReduceAll)
      for (const size_t bytes : {kTiny, kHuge})
        same(static_cast<CollectiveKind>(kind), bytes, PlanCall::Numbers::kFloatSums);
  EXPECT_STREQ(with.choose(CollectiveKind::kAllGather, kHuge).name, "multi_connection");
}

// More ranks than kernels for peer memory know: GpuExecutor::complete() is false.
TEST(PlanChooser, RunsMessagesAsLanesForAnyNumberOfRanks) {
  PlanChooser chooser({}, 0, "test", nothing_imported());
  weft::Placement placement;
  placement.lanes = true;
  chooser.place(placement);
  for (int kind = 0; kind < kCollectiveKinds; kind++)
    for (const size_t bytes : {kTiny, kHuge}) {
      const Collective c{static_cast<CollectiveKind>(kind), 72, 0};
      const Choice choice = chooser.choose(PlanCall::of_size(c, bytes));
      EXPECT_EQ(choice.path, PlanPath::kLanes) << name(c.kind);
      EXPECT_FALSE(choice.generator->peer_memory) << choice.name;
    }
}

TEST(PlanChooser, RunsForcedMessagesAsLanesBeyondPackets) {
  OnGpus gpus;
  gpus.chooser.force(kReduceAll, &kRing);
  EXPECT_EQ(gpus.chooser.choose(call_of_size(kTiny)).path, PlanPath::kPackets);
  EXPECT_EQ(gpus.chooser.choose(call_of_size(Config().packet_bytes)).path, PlanPath::kPackets);
  EXPECT_EQ(gpus.chooser.choose(call_of_size(Config().packet_bytes + 4)).path, PlanPath::kLanes);
  EXPECT_EQ(gpus.chooser.choose(call_of_size(kHuge)).path, PlanPath::kLanes);
  gpus.chooser.force(kReduceAll, &kPeerMemory);
  EXPECT_EQ(gpus.chooser.choose(call_of_size(kHuge)).path, PlanPath::kLoadStore);
}

// WEFT_TOPO: what the table chose for that machine runs here, in every size.
TEST(PlanChooser, RunsThePlansOfAnEmulatedMachine) {
  Config config;
  for (const char* topo : {"dgx-h100", "dgx1v"}) {
    config.topo = topo;
    PlanChooser chooser(config, 0, "test", nothing_imported());
    chooser.agree(plans_of_gpus(topo, "", config));
    weft::Placement placement;
    placement.lanes = true;
    placement.peer_memory = config.topo == "dgx-h100";
    chooser.place(placement);
    for (const size_t bytes : {kTiny, kHuge}) {
      const Choice choice = chooser.choose(call_of_size(bytes));
      const PlanOption* option = chooser.agreed().table.choose(kReduceAll, bytes, false);
      ASSERT_NE(option, nullptr);
      EXPECT_EQ(choice.name, option->name) << topo;
      EXPECT_EQ(choice.path, option->path) << topo;
      if (!placement.peer_memory) {
        EXPECT_EQ(choice.path, PlanPath::kLanes) << choice.name;
      }
    }
  }
}

// A machine on which all GPUs should reach each other, and then init finds that some do not.
TEST(PlanChooser, TakesTheCheapestMessagesWhereThePlannedKernelCannotRun) {
  const OnGpus gpus;
  const WithoutAccess lame;
  EXPECT_EQ(gpus.chooser.choose(call_of_size(kTiny)).path, PlanPath::kPackets);
  const Choice choice = lame.chooser.choose(call_of_size(kTiny));
  EXPECT_EQ(choice.path, PlanPath::kLanes);
  EXPECT_EQ(choice.name, lame.chooser.agreed().table.choose(kReduceAll, kTiny, true)->name);
}

TEST(PlanChooser, ALoneRankNeedsNoLanes) {
  Config config;
  config.topo = "dgx-h100";
  const OnGpus gpus(config);
  const PlanCall call = PlanCall::of_size({kReduceAll, 1, 0}, kHuge);
  EXPECT_NE(gpus.chooser.choose(call).path, PlanPath::kLanes);
}

TEST(PlanChooser, RunsImportedSchedulesWithCpuNodesThroughHostFifosAndNotInGraphs) {
  ScheduleFile file;
  file.schedule = kCpuReduce.make({kReduceAll, kEight, 0}, false);
  const OnGpus gpus({}, {}, ImportedSchedules::only(file, "cpu.json"));
  PlanCall call = call_of_size(kHuge);
  EXPECT_STREQ(gpus.chooser.choose(call).name, "cpu.json");
  EXPECT_EQ(gpus.chooser.choose(call).path, PlanPath::kFifos);
  call.captured = true;
  EXPECT_STREQ(gpus.chooser.choose(call).name, "peer_memory");
}

// weftPlanOf() used to name a built-in plan while the imported schedule ran.
TEST(PlanChooser, NamesAnImportedScheduleToUsers) {
  const std::string path = testing::TempDir() + "/weft-plan-chooser-ring.json";
  ScheduleFile file;
  file.schedule = kRing.make({kReduceAll, 3, 0}, false);
  save_schedule(file, path);
  const ScopedEnvironment environment{{"WEFT_SCHEDULES", path.c_str()}};
  run_ranks_as_threads(3, [&](int, ncclComm_t comm) {
    const char* plan = nullptr;
    ASSERT_EQ(weftPlanOf(comm, "all_reduce", 1 << 20, &plan), ncclSuccess);
    EXPECT_EQ(plan, path);
    ASSERT_EQ(weftPlanOf(comm, "all_gather", 1 << 20, &plan), ncclSuccess);
    EXPECT_NE(find_generator(plan), nullptr) << plan;
  });
}

// The estimate of a call that has no plan fails; the group must not stay open with it.
TEST(PlanChooser, EndsTheGroupWhoseCallCannotBeEstimated) {
  const ScopedEnvironment environment{{"WEFT_PLAN", "all_reduce=peer_memory"}};
  run_ranks_as_threads(2, [&](int, ncclComm_t comm) {
    std::vector<float> data(16);
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(
        ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr),
        ncclSuccess);
    EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidUsage);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "the group is still open";
  });
}

// Threads launch kernels one at a time, processes do not.
TEST(SharedGpu, HasRatesOfItsOwnForProcesses) {
  Config config;
  config.cache = testing::TempDir() + "weft_process_rates." + std::to_string(getpid());
  Calibration calibration;
  calibration.measured = "measured by a test";
  calibration.rates[kGpuRates] = default_rates(kGpuRates);
  calibration.rates[kGpuRates].call_us = 50;
  const auto us = [&](bool one_process) {
    HostSetting setting;
    setting.cores = 64;
    setting.one_process = one_process;
    const Machine machine = load_machine("hgx-h200");
    const SelectionTable table = make_init_plans({config,
                                                  2,
                                                  true,
                                                  setting,
                                                  machine,
                                                  1,
                                                  [](const ImportedSchedule&) { return true; },
                                                  0,
                                                  {"0000:01:00.0", "0000:01:00.0"},
                                                  "",
                                                  unfit_for_host_fifos})
                                     .table;
    return SelectionTable::estimate(*table.choose(kReduceAll, kTiny, false), kTiny);
  };
  save_rates(config, calibration);
  EXPECT_GT(us(true), 50);
  EXPECT_GT(us(false), 50) << "those of threads are better than none";
  calibration.rates[kGpuProcessRates] = default_rates(kGpuProcessRates);
  save_rates(config, calibration);
  EXPECT_GT(us(true), 50);
  EXPECT_LT(us(false), 50);
  std::filesystem::remove_all(config.cache);
}

}  // namespace
}  // namespace weft::test
