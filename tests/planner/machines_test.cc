// Communicators that plan for a machine of the catalogue (WEFT_TOPO). They get the plans of that
// machine, and their results are right.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>

#include "algorithms/catalogue/catalogue.h"
#include "algorithms/generators/generators.h"
#include "include/weft.h"
#include "src/base/error.h"
#include "src/planner/schedule_cache.h"
#include "src/schedule/schedule_bytes.h"
#include "src/topology/formats/machine_json.h"
#include "src/topology/graph/rank_machine.h"
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

// Rank 0's log of init. `work` runs on every rank.
std::string log_of_init(
    int n, std::initializer_list<ScopedEnvironment::Setting> settings,
    const std::function<void(int, ncclComm_t)>& work = [](int, ncclComm_t) {}) {
  const Folder folder;
  const ScopedEnvironment log{{"NCCL_DEBUG", "INFO"},
                              {"NCCL_DEBUG_FILE", (folder.path / "log").string()}};
  const ScopedEnvironment environment(settings);
  ncclResetDebugInit();
  run_ranks_as_threads(n, work);
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

// Four GPUs of an NDv2, in a file. One NVLink has this share of its rate.
void write_four_gpus(const fs::path& file, double share) {
  const Machine whole = load_machine("ndv2");
  std::vector<int> some = gpus(whole);
  some.resize(4);
  Machine machine = reduce_to(whole, some);
  machine.links[0].gbps *= share;
  std::ofstream(file) << machine_to_json(machine);
}

// Plans for the four GPUs in the file, and checks results of calls. Rank 0's log of init.
std::string log_of_four(const fs::path& file, const Folder& cache, const char* synthesis_seconds) {
  const std::vector<Case> cases = random_cases(4, test_samples(12), test_seed());
  Watchdog watchdog(4);
  return log_of_init(4,
                     {{"WEFT_TOPO", file.string()},
                      {"WEFT_CACHE", cache.path.string()},
                      {"WEFT_SYNTHESIS_SECONDS", synthesis_seconds},
                      {"WEFT_BACKGROUND_SYNTHESIS", "0"}},
                     [&](int rank, ncclComm_t comm) {
                       expect_all_reduce_works(comm, 1 << 16);
                       run_cases(cases, rank, 4, comm, &watchdog);
                     });
}

// Files of the cache whose names begin so. Schedules lie in a folder, tables beside it.
std::vector<fs::path> cached(const Folder& cache, const std::string& begin) {
  std::vector<fs::path> found;
  for (const fs::path& path : cache.files())
    if (path.filename().string().starts_with(begin)) found.push_back(path);
  return found;
}

bool has_text(const std::string& log, const char* text) {
  return log.find(text) != std::string::npos;
}

// A table without its first line, which says how long synthesis took.
std::string options_of(const std::string& table) { return table.substr(table.find('\n')); }

constexpr const char* kTableRefused = "a cached table is not used";
constexpr const char* kTableTaken = "the table from the cache";

TEST(Cache, RefusesATableThatNamesWhatIsNotThereAndBuildsItAnew) {
  const Folder cache, files;
  const fs::path topo = files.path / "four.json";
  write_four_gpus(topo, 1);
  log_of_four(topo, cache, "60");
  const std::string all_reduce = std::to_string(static_cast<int>(CollectiveKind::kAllReduce));
  // The fields of an option: collective, name, schedule or -1, path. Path 2 is packets.
  const std::pair<const char*, std::string> damages[] = {
      {"(option\t\\d+\tsynth-[^\t]*\t)\\d+", "$&999"},  // no such schedule
      {"(option\t\\d+\tsynth-[^\t]*\t)\\d+", "$1-2"},   // not kept: for other ranks only
      {"option\t\\d+\t(synth-all_gather)", "option\t" + all_reduce + "\t$1"},
      {"(option\t\\d+\t)ring\t-1\t0", "$1no-such-plan\t-1\t2"},
      {"(option\t\\d+\t)ring\t-1\t0", "$1no-such-plan\t-1\t3"},  // loads and stores
      {"(option\t\\d+\t)ring\t-1\t0", "$1no-such-plan\t-1\t0"},
      {"(option\t\\d+\t)ring\t-1\t0", "$1peer_memory\t-1\t0"},
      {"option\t\\d+\t(ring\t-1\t0)", "option\t" + all_reduce + "\tpairwise\t-1\t0"},
  };
  for (const auto& [pattern, damaged] : damages) {
    SCOPED_TRACE(damaged);
    const std::vector<fs::path> tables = cached(cache, "table-");
    ASSERT_EQ(tables.size(), 1u);
    const std::string good = read(tables[0]);
    const std::string bad = std::regex_replace(good, std::regex(pattern), damaged);
    ASSERT_NE(bad, good);
    std::ofstream(tables[0], std::ios::trunc) << bad;
    const std::string first = log_of_four(topo, cache, "0");
    EXPECT_TRUE(has_text(first, kTableRefused)) << first;
    EXPECT_FALSE(has_text(first, kTableTaken)) << first;
    EXPECT_EQ(options_of(read(tables[0])), options_of(good)) << "the same table is built again";
    const std::string second = log_of_four(topo, cache, "0");
    EXPECT_FALSE(has_text(second, kTableRefused)) << second;
    EXPECT_TRUE(has_text(second, kTableTaken)) << second;
  }
}

// The plans of some calls, with what the cache has.
std::string plans_of_four(const fs::path& file, const Folder& cache) {
  const ScopedEnvironment environment{{"WEFT_TOPO", file.string()},
                                      {"WEFT_CACHE", cache.path.string()},
                                      {"WEFT_SYNTHESIS_SECONDS", "0"},
                                      {"WEFT_BACKGROUND_SYNTHESIS", "0"}};
  std::string plans;
  run_ranks_as_threads(4, [&](int rank, ncclComm_t comm) {
    for (const char* kind : {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"})
      for (const size_t bytes : {size_t{64}, size_t{1} << 16, size_t{64} << 20}) {
        const char* plan = nullptr;
        WEFT_OK(weftPlanOf(comm, kind, bytes, &plan));
        if (rank == 0) plans += std::string(plan) + "\n";
      }
  });
  return plans;
}

TEST(Cache, TakesNoRangesFromATable) {
  const Folder cache, files;
  const fs::path topo = files.path / "four.json";
  write_four_gpus(topo, 1);
  log_of_four(topo, cache, "60");
  const std::vector<fs::path> tables = cached(cache, "table-");
  ASSERT_EQ(tables.size(), 1u);
  const std::string good = read(tables[0]);
  const std::string plans = plans_of_four(topo, cache);
  // All collectives at all sizes take the last option, a schedule for one of them.
  int options = 0;
  for (size_t at = 0; (at = good.find("\noption\t", at)) != std::string::npos; at++) options++;
  const std::regex range("((range|generators)\t\\d+\t\\d+\t)\\d+");
  const std::string bad = std::regex_replace(good, range, "$01" + std::to_string(options - 1));
  ASSERT_NE(bad, good);
  std::ofstream(tables[0], std::ios::trunc) << bad;
  EXPECT_TRUE(has_text(log_of_four(topo, cache, "0"), kTableTaken));
  EXPECT_EQ(plans_of_four(topo, cache), plans);
}

TEST(Cache, RefusesSchedulesOfOtherCollectives) {
  const Folder cache, files;
  const fs::path topo = files.path / "four.json";
  write_four_gpus(topo, 1);
  log_of_four(topo, cache, "60");
  const std::vector<fs::path> reduces = cached(cache, "synth-all_reduce-large"),
                              gathers = cached(cache, "synth-all_gather-large");
  ASSERT_FALSE(reduces.empty());
  ASSERT_FALSE(gathers.empty());
  const std::string reduce = read(reduces[0]), gather = read(gathers[0]);
  std::ofstream(reduces[0], std::ios::trunc) << gather;
  std::ofstream(gathers[0], std::ios::trunc) << reduce;
  const std::string log = log_of_four(topo, cache, "0");
  EXPECT_TRUE(has_text(log, "a cached plan is not used")) << log;
  EXPECT_TRUE(has_text(log, "it is of another collective")) << log;
  EXPECT_FALSE(has_text(log, kTableTaken)) << "it was built with two schedules more: " << log;
}

// What a table of the cache names is not believed either.
TEST(Cache, ProvesWhatATableChooses) {
  const Collective all_reduce{CollectiveKind::kAllReduce, 4, 0};
  const auto known = [&](const ScheduleFile& file) {
    return KnownSchedule{"synth-all_reduce-large", all_reduce, write_schedule_bytes(file)};
  };
  const auto fits = [](const ImportedSchedule&) { return true; };
  ScheduleFile file;
  file.schedule = kRing.make(all_reduce, false);
  EXPECT_EQ(prove_known(known(file), fits)->collective, all_reduce);
  EXPECT_THROW(prove_known(known(file), [](const ImportedSchedule&) { return false; }), Error);
  ScheduleFile lame = file;  // the last rank misses something
  lame.schedule.ranks.back().lanes.front().steps.pop_back();
  EXPECT_THROW(prove_known(known(lame), fits), Error);
  ScheduleFile other;
  other.schedule = kRing.make({CollectiveKind::kAllGather, 4, 0}, false);
  EXPECT_THROW(prove_known(known(other), fits), Error);
  EXPECT_THROW(prove_known({"synth-all_reduce-large", all_reduce, "nonsense"}, fits), Error);
}

TEST(Cache, HasNothingForAMachineThatChanged) {
  const Folder cache, files;
  const fs::path topo = files.path / "four.json";
  write_four_gpus(topo, 1);
  const std::string first = log_of_four(topo, cache, "60");
  EXPECT_TRUE(has_text(first, "; 0 schedules from the cache")) << first;
  const std::string same = log_of_four(topo, cache, "0");
  EXPECT_FALSE(has_text(same, "; 0 schedules from the cache")) << same;
  EXPECT_TRUE(has_text(same, kTableTaken)) << same;
  write_four_gpus(topo, 0.9);
  const std::string changed = log_of_four(topo, cache, "60");
  EXPECT_TRUE(has_text(changed, "; 0 schedules from the cache")) << changed;
  EXPECT_FALSE(has_text(changed, "; 0 schedules from the cache, 0 synthesized")) << changed;
  EXPECT_FALSE(has_text(changed, kTableTaken)) << changed;
  // What the cache had is still there.
  write_four_gpus(topo, 1);
  EXPECT_TRUE(has_text(log_of_four(topo, cache, "0"), kTableTaken));
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
  const fs::path path = folder.path / ("rates-" + host.substr(0, host.find(char{0})));
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
