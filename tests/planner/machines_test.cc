// Communicators that plan for a machine of the catalogue (WEFT_TOPO). They get the plans of that
// machine, and their results are right.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "algorithms/catalogue/catalogue.h"
#include "algorithms/generators/generators.h"
#include "include/weft.h"
#include "tests/comm/checks.h"
#include "tests/support/conformance.h"
#include "tests/support/environment.h"
#include "tests/support/sampling.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;

// A folder for one test.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "weft-planning-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for the test");
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> list;
    for (const auto& entry : fs::recursive_directory_iterator(path))
      if (entry.is_regular_file()) list.push_back(entry.path());
    return list;
  }
  fs::path path;
};

std::string read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void run_on(int n, const std::vector<Case>& cases) {
  Watchdog watchdog(n);
  run_ranks_as_threads(
      n, [&](int rank, ncclComm_t comm) { run_cases(cases, rank, n, comm, &watchdog); },
      std::chrono::minutes(10));
}

// Every machine of the catalogue with up to 32 GPUs, and pairs of small ones. A run takes a few of
// them, different ones each day. WEFT_TEST_MACHINES=all takes all.
std::vector<std::string> machines() {
  std::vector<std::string> all;
  for (const std::string& name : catalogue_names()) {
    const size_t gpus_of_one = gpus(load_machine(name)).size();
    if (gpus_of_one <= 32) all.push_back(name);
    if (2 * gpus_of_one <= 32 && !nodes_of(load_machine(name), NodeType::kNic).empty())
      all.push_back(name + "x2");
  }
  const char* wanted = std::getenv("WEFT_TEST_MACHINES");
  if (wanted != nullptr && std::string(wanted) == "all") return all;
  std::vector<std::string> some = {"ndv2", "ndv2x2"};
  for (int i = 0; i < 2; i++)
    some.push_back(all[mix(test_seed(), static_cast<uint64_t>(i)) % all.size()]);
  return some;
}

TEST(EmulatedMachines, GiveTheReferenceResults) {
  const Folder folder;
  const ScopedEnvironment cache{{"WEFT_CACHE", folder.path.string()}};
  for (const std::string& name : machines()) {
    SCOPED_TRACE(name);
    const int n = static_cast<int>(gpus(load_machine(name)).size());
    const ScopedEnvironment environment{{"WEFT_TOPO", name}};
    std::vector<Case> cases = random_cases(n, test_samples(n > 16 ? 6 : 12), test_seed());
    run_on(n, cases);
  }
}

// Rank 0's log of init.
std::string log_of_init(int n, std::initializer_list<ScopedEnvironment::Setting> settings) {
  const Folder folder;
  const ScopedEnvironment log{{"NCCL_DEBUG", "INFO"},
                              {"NCCL_DEBUG_FILE", (folder.path / "log").string()}};
  const ScopedEnvironment environment(settings);
  ncclResetDebugInit();
  run_ranks_as_threads(n, [](int, ncclComm_t) {});
  unsetenv("NCCL_DEBUG_FILE");
  ncclResetDebugInit();
  return read(folder.path / "log");
}

TEST(EmulatedMachines, ArePlannedForWithSchedulesMadeForThemWhichTheCacheKeeps) {
  const Folder folder;
  const std::string cache = folder.path.string();
  const std::string first = log_of_init(
      8, {{"WEFT_TOPO", "ndv2"}, {"WEFT_CACHE", cache}, {"WEFT_SYNTHESIS_SECONDS", "60"}});
  EXPECT_NE(first.find("ndv2 (8 of its 8 GPUs)"), std::string::npos) << first;
  EXPECT_NE(first.find("synth-all_reduce-large"), std::string::npos) << first;
  ASSERT_GE(folder.files().size(), 5u);
  const std::string second = log_of_init(8, {{"WEFT_TOPO", "ndv2"}, {"WEFT_CACHE", cache}});
  EXPECT_NE(second.find("from the cache, 0 synthesized"), std::string::npos) << second;
  // The library reports damaged files and makes them again.
  for (const fs::path& path : folder.files())
    std::ofstream(path, std::ios::trunc) << "{\"weft_sche";
  const std::string third = log_of_init(
      8, {{"WEFT_TOPO", "ndv2"}, {"WEFT_CACHE", cache}, {"WEFT_SYNTHESIS_SECONDS", "60"}});
  EXPECT_NE(third.find("a cached plan is not used"), std::string::npos) << third;
  EXPECT_NE(third.find("synth-all_reduce-large"), std::string::npos) << third;
}

TEST(Cache, ThatCannotBeWrittenIsALineAndNoFailure) {
  const Folder folder;
  std::ofstream(folder.path / "file") << "no folder";
  const std::string log =
      log_of_init(8, {{"WEFT_TOPO", "ndv2"},
                      {"WEFT_CACHE", (folder.path / "file" / "cache").string()},
                      {"WEFT_SYNTHESIS_SECONDS", "60"}});  // enough time on any machine
  EXPECT_NE(log.find("plans are not kept"), std::string::npos) << log;
  EXPECT_NE(log.find("synth-all_reduce-large"), std::string::npos) << log;
}

TEST(Synthesis, ThatIsNotThereIsALineAndNoFailure) {
  const std::string log = log_of_init(
      8, {{"WEFT_TOPO", "ndv2"}, {"WEFT_CACHE", "none"}, {"WEFT_SYNTHESIS", "/nowhere/lib.so"}});
  EXPECT_NE(log.find("no schedules are synthesized"), std::string::npos) << log;
  EXPECT_EQ(log.find("synth-"), std::string::npos) << log;
}

TEST(Calibration, IsUsedAndSaidSoAndIsALineWhereItCannotBeRead) {
  const Folder folder;
  std::string host(256, '\0');
  gethostname(host.data(), host.size() - 1);
  const fs::path path = folder.path / (std::string("rates-") + host.c_str());
  std::ofstream(path) << "weft rates 3\nmeasured by a test\n[threads]\nhop_us 0.25\n";
  const std::string good = log_of_init(2, {{"WEFT_CACHE", folder.path.string()}});
  EXPECT_NE(good.find("rates measured by a test"), std::string::npos) << good;
  std::ofstream(path) << "weft rates 3\nmeasured by a test\n[threads]\nhop_us fast\n";
  const std::string bad = log_of_init(2, {{"WEFT_CACHE", folder.path.string()}});
  EXPECT_NE(bad.find("'fast' is no rate"), std::string::npos) << bad;
  EXPECT_NE(bad.find("default rates"), std::string::npos) << bad;
}

TEST(TunerPlugins, OfEveryVersionDecide) {
  for (const char* version : {"2", "3", "4", "5", "6"}) {
    const std::string log = log_of_init(
        4,
        {{"NCCL_TUNER_PLUGIN", std::string(WEFT_TEST_TUNERS) + "/libtuner_v" + version + ".so"}});
    EXPECT_NE(log.find("tuner plugin test tuner changes"), std::string::npos) << version << log;
    // The tuner asks for ring for all_reduce at any size.
    EXPECT_NE(log.find("all_reduce            0 to any      ring"), std::string::npos)
        << version << log;
  }
  const std::string none = log_of_init(2, {{"NCCL_TUNER_PLUGIN", "nobody-has-this"}});
  EXPECT_NE(none.find("NCCL_TUNER_PLUGIN=nobody-has-this"), std::string::npos) << none;
}

TEST(GroupSimulateEnd, GivesTheEstimateOfTheModel) {
  run_ranks_as_threads(2, [](int, ncclComm_t comm) {
    std::vector<float> in(1 << 20), out(1 << 20);
    float times[2] = {};
    for (const bool large : {false, true}) {
      ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
      WEFT_OK(ncclGroupStart());
      WEFT_OK(ncclAllReduce(in.data(), out.data(), large ? in.size() : 16, ncclFloat32, ncclSum,
                            comm, nullptr));
      WEFT_OK(ncclGroupSimulateEnd(&info));
      times[large ? 1 : 0] = info.estimatedTime;
    }
    EXPECT_GT(times[0], 0);
    EXPECT_GT(times[1], 10 * times[0]);
  });
}

TEST(GroupSimulateEnd, EstimatesThePlanThatIsForced) {
  run_ranks_as_threads(4, [](int, ncclComm_t comm) {
    std::vector<float> data(16);
    const auto estimate = [&](const char* plan) {
      WEFT_OK(weftForcePlan(comm, "all_reduce", plan));
      ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
      WEFT_OK(ncclGroupStart());
      WEFT_OK(ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm,
                            nullptr));
      WEFT_OK(ncclGroupSimulateEnd(&info));
      return info.estimatedTime;
    };
    const char* chosen = nullptr;
    WEFT_OK(weftPlanOf(comm, "all_reduce", 64, &chosen));
    const float agreed = estimate(nullptr);
    EXPECT_EQ(estimate(chosen), agreed);
    EXPECT_GT(estimate("ring"), agreed) << "six messages one after the other, for 64 bytes";
  });
}

TEST(PlanOf, NamesTheChosenPlanAndTheForcedOne) {
  for (const char* forced : {"", "all_reduce=ring"}) {
    const ScopedEnvironment environment{{"WEFT_PLAN", forced}};
    run_ranks_as_threads(3, [&](int, ncclComm_t comm) {
      const char* plan = nullptr;
      WEFT_OK(weftPlanOf(comm, "all_reduce", 1 << 20, &plan));
      EXPECT_NE(find_generator(plan), nullptr) << plan;
      if (forced[0] != '\0') {
        EXPECT_STREQ(plan, "ring");
      }
      EXPECT_EQ(weftPlanOf(comm, "all_reduced", 1 << 20, &plan), ncclInvalidArgument);
    });
  }
}

TEST(ForcePlan, HoldsForCallsUntilItIsTakenBack) {
  run_ranks_as_threads(3, [&](int rank, ncclComm_t comm) {
    const char *plan = nullptr, *chosen = nullptr;
    WEFT_OK(weftPlanOf(comm, "all_reduce", 64, &chosen));
    for (const char* forced : {"ring", "tree", static_cast<const char*>(nullptr)}) {
      WEFT_OK(weftForcePlan(comm, "all_reduce", forced));
      WEFT_OK(weftPlanOf(comm, "all_reduce", 64, &plan));
      EXPECT_STREQ(plan, forced == nullptr ? chosen : forced);
      std::vector<int> data(16, rank + 1);
      WEFT_OK(ncclAllReduce(data.data(), data.data(), 16, ncclInt32, ncclSum, comm, nullptr));
      EXPECT_EQ(data, std::vector<int>(16, 6));
    }
    EXPECT_EQ(weftForcePlan(comm, "all_reduce", "no-such-plan"), ncclInvalidUsage);
    EXPECT_EQ(weftForcePlan(comm, "all_reduce", "pairwise"), ncclInvalidUsage);
    EXPECT_EQ(weftForcePlan(comm, "all_reduced", "ring"), ncclInvalidArgument);
    if (weftHostMode() != 0) {
      EXPECT_EQ(weftForcePlan(comm, "all_reduce", "peer_memory"), ncclInvalidUsage);
      EXPECT_NE(std::string(ncclGetLastError(comm)).find("peers' memory, which host mode cannot"),
                std::string::npos)
          << ncclGetLastError(comm);
    }
    EXPECT_EQ(weftForcePlan(comm, "all_reduce", "cpu_reduce"), ncclInvalidUsage);
    expect_all_reduce_works(comm);
  });
}

TEST(PlaceRanks, AnswersThroughTheLibrary) {
  int gpus[16] = {};
  EXPECT_EQ(weftPlaceRanks("ndv2x2", 16, WEFT_PIPELINE, gpus), ncclSuccess);
  EXPECT_LT(gpus[7], 8);
  EXPECT_GE(gpus[8], 8);
  EXPECT_EQ(weftPlaceRanks("ndv2x2", 17, WEFT_RING, gpus), ncclInvalidUsage);
  EXPECT_EQ(weftPlaceRanks("no-such-machine", 2, WEFT_RING, gpus), ncclInvalidArgument);
}

}  // namespace
}  // namespace weft::test
