// Compression as it is set: at which call a setting counts, what ranks must agree on, and which
// plans it allows. Every process is its own host here.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "algorithms/generators/coded.h"
#include "src/schedule/schedule_file.h"
#include "tests/comm/checks.h"
#include "tests/support/processes.h"
#include "weft.h"

namespace weft::test {
namespace {

constexpr size_t kFloats = 1u << 18;  // of the smallest array that is compressed

ProcessOptions with_variables(const std::map<std::string, std::string>& variables,
                              const std::string& argument = "") {
  ProcessOptions options;
  options.argument = argument;
  options.environment = [variables](int rank) {
    auto environment = separate_hosts(rank);
    environment.insert(variables.begin(), variables.end());
    return environment;
  };
  return options;
}

std::string plan_of(ncclComm_t comm, size_t bytes = 4 * kFloats) {
  const char* plan = "";
  WEFT_OK(weftPlanOf(comm, "all_reduce", bytes, &plan));
  return plan;
}

// Whether an all_reduce of two ranks is inexact: 0.3 and 0.6 are no multiples of 1/127 and 1/7, and
// both come out too small or too large.
bool loses(ncclComm_t comm) {
  const float mine = 0.3f * static_cast<float>(rank_of(comm) + 1);
  std::vector<float> data(kFloats, mine);
  data[0] = 1;
  WEFT_OK(ncclAllReduce(data.data(), data.data(), kFloats, ncclFloat32, ncclSum, comm, nullptr));
  return std::abs(data[1] - 0.9f) > 1e-6f;
}

// The large call is still under way when the setting is made.
WEFT_SCENARIO(set_while_calls_run) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ncclCommInitRankConfig(&comm, context.nranks, context.ids[0], context.rank, &config);
  ASSERT_EQ(settle(comm), ncclSuccess);
  const size_t count = 32 * kFloats;
  const float mine = 0.3f * static_cast<float>(context.rank + 1);
  std::vector<float> data(count, mine);
  data[0] = 1;
  const ncclResult_t started =
      ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, comm, nullptr);
  EXPECT_TRUE(started == ncclSuccess || started == ncclInProgress);
  WEFT_OK(weftCommSetCompression(comm, "all_reduce=int8:feedback"));
  ncclResult_t state = ncclInProgress;
  WEFT_OK(ncclCommGetAsyncError(comm, &state));
  EXPECT_EQ(state, ncclSuccess) << "a call was under way while its setting changed";
  EXPECT_EQ(settle(comm), ncclSuccess);
  EXPECT_NEAR(data[1], 0.9f, 1e-6);
  std::fill(data.begin() + 1, data.end(), mine);
  ncclAllReduce(data.data(), data.data(), kFloats, ncclFloat32, ncclSum, comm, nullptr);
  EXPECT_EQ(settle(comm), ncclSuccess);
  weftCompression_t report{};
  WEFT_OK(weftCompressionReport(comm, &report));
  EXPECT_EQ(report.calls, 1u);
  ncclCommFinalize(comm);
  settle(comm);
  WEFT_OK(ncclCommDestroy(comm));
}

TEST(CompressionSettings, CountFromTheNextCallOnOfNonBlockingCommunicatorsToo) {
  run_ranks_as_processes("set_while_calls_run", 2, with_variables({}));
}

WEFT_SCENARIO(suspended_and_resumed) {
  with_communicator(context, [&](ncclComm_t comm) {
    WEFT_OK(weftForcePlan(comm, "all_gather", "ring"));
    for (const char* setting : {"all_reduce=int8", "off", "all_reduce=int8"}) {
      WEFT_OK(weftCommSetCompression(comm, setting));
      const bool before = loses(comm);
      WEFT_OK(ncclCommSuspend(comm, NCCL_SUSPEND_MEM));
      WEFT_OK(ncclCommResume(comm));
      EXPECT_EQ(loses(comm), before) << setting;
      EXPECT_EQ(before, std::string(setting) != "off");
      const char* plan = "";
      WEFT_OK(weftPlanOf(comm, "all_gather", 64, &plan));
      EXPECT_STREQ(plan, "ring");
    }
  });
}

// Times decide, so both outcomes are right. All ranks must have the same.
WEFT_SCENARIO(automatic) {
  with_communicator(context, [&](ncclComm_t comm) {
    weftCompression_t report{};
    WEFT_OK(weftCompressionReport(comm, &report));
    EXPECT_EQ(report.calls, 0u) << "trials do not count";
    const std::string plan = plan_of(comm, 64 * kFloats);
    uint64_t compressed = plan.find("int8") != std::string::npos ? 1 : 0;
    WEFT_OK(ncclAllReduce(&compressed, &compressed, 1, ncclUint64, ncclSum, comm, nullptr));
    EXPECT_TRUE(compressed == 0 || compressed == static_cast<uint64_t>(context.nranks)) << plan;
    std::vector<float> data(16 * kFloats, 1.0f);
    WEFT_OK(
        ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr));
    EXPECT_NEAR(data.back(), context.nranks, 1e-5);
    WEFT_OK(weftCompressionReport(comm, &report));
    EXPECT_EQ(report.calls, compressed > 0 ? 1u : 0u);
    // By a call, too. What was decided is remembered.
    WEFT_OK(weftCommSetCompression(comm, "auto"));
  });
  if (context.rank != 0) return;
  size_t remembered = 0;
  for (const auto& file : std::filesystem::directory_iterator(context.argument))
    remembered += file.path().filename().string().starts_with("compress-") ? 1 : 0;
  EXPECT_EQ(remembered, 1u);
}

TEST(CompressionSettings, ByMeasuringAreTheSameOnAllRanks) {
  for (const int n : {2, 3}) {
    const std::string folder =
        testing::TempDir() + "/weft-auto-" + std::to_string(getpid()) + "-" + std::to_string(n);
    run_ranks_as_processes(
        "automatic", n,
        with_variables({{"WEFT_COMPRESS", "auto"}, {"WEFT_CACHE", folder}}, folder));
    std::filesystem::remove_all(folder);
  }
}

TEST(CompressionSettings, AndForcedPlansStayWhenTheCommunicatorIsSuspended) {
  run_ranks_as_processes("suspended_and_resumed", 2, with_variables({{"WEFT_COMPRESS", "off"}}));
}

WEFT_SCENARIO(set_in_a_group) {
  with_communicator(context, [&](ncclComm_t comm) {
    WEFT_OK(ncclGroupStart());
    EXPECT_EQ(weftCommSetCompression(comm, "all_reduce=int8"), ncclInvalidUsage);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_FALSE(loses(comm));
  });
}

TEST(CompressionSettings, AreNotForGroupsWhoseCallsAreLaunchedLater) {
  run_ranks_as_processes("set_in_a_group", 2, with_variables({}));
}

WEFT_SCENARIO(other_losses) {
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, context.nranks, context.ids[0], context.rank),
            ncclInvalidUsage);
  const std::string text = ncclGetLastError(nullptr);
  for (const char* part : {"WEFT_COMPRESS_LOSSES", "1048576", "2097152", "rank 1"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
}

TEST(CompressionSettings, LimitsOfFeedbackThatDifferAreAnErrorOnAllRanksThatNamesBoth) {
  ProcessOptions options;
  options.environment = [](int rank) {
    auto environment = separate_hosts(rank);
    environment["WEFT_COMPRESS_LOSSES"] = rank == 1 ? "2M" : "1M";
    return environment;
  };
  run_ranks_as_processes("other_losses", 3, options);
}

WEFT_SCENARIO(plan_under_compression) {
  with_communicator(context, [&](ncclComm_t comm) {
    const std::string plain = plan_of(comm);
    WEFT_OK(weftCommSetCompression(comm, "all_reduce=int8"));
    EXPECT_NE(plan_of(comm), plain);
    EXPECT_NE(plan_of(comm).find("int8"), std::string::npos) << plan_of(comm);
    EXPECT_EQ(plan_of(comm, 4096).find("int8"), std::string::npos) << plan_of(comm, 4096);
    WEFT_OK(weftCommSetCompression(comm, "off"));
    EXPECT_EQ(plan_of(comm), plain);
  });
}

TEST(CompressionSettings, ShowInTheNameOfThePlan) {
  run_ranks_as_processes("plan_under_compression", 2, with_variables({}));
}

WEFT_SCENARIO(reduce_twice) {
  with_communicator(context, [&](ncclComm_t comm) {
    EXPECT_EQ(loses(comm), context.argument == "loses");
    loses(comm);
  });
}

int lines_with(const std::vector<ProcessResult>& results, const std::string& part) {
  int lines = 0;
  for (const ProcessResult& result : results) {
    EXPECT_EQ(result.exit_code, 0) << result.output;
    for (size_t at = 0; (at = result.output.find(part, at)) != std::string::npos; at++) lines++;
  }
  return lines;
}

TEST(CompressionSettings, ThatAForcedPlanPutsAsideAreToldOnce) {
  const auto results = run_processes("reduce_twice", 2,
                                     with_variables({{"WEFT_COMPRESS", "all_reduce=int8"},
                                                     {"WEFT_PLAN", "all_reduce=ring"},
                                                     {"NCCL_DEBUG", "WARN"}}));
  EXPECT_EQ(lines_with(results, "all_reduce is not compressed: WEFT_PLAN"), 1);
}

// A schedule with int8 in a file, which is removed at the end.
class CodedFile {
 public:
  CodedFile() : path_(testing::TempDir() + "/weft-coded-" + std::to_string(getpid()) + ".json") {
    ScheduleFile file;
    const std::vector<int> hosts = {0, 1};
    file.schedule = make_coded({CollectiveKind::kAllReduce, 2, 0}, hosts, parse_codec_spec("int8"));
    save_schedule(file, path_);
  }
  ~CodedFile() { std::filesystem::remove(path_); }
  CodedFile(const CodedFile&) = delete;
  CodedFile& operator=(const CodedFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(CompressionSettings, KeepLossyImportedSchedulesFromRunningUnlessTheyAllowThem) {
  const CodedFile file;
  const auto warnings = [&](const std::string& compress, const char* outcome) {
    return lines_with(run_processes("reduce_twice", 2,
                                    with_variables({{"WEFT_SCHEDULES", file.path()},
                                                    {"WEFT_COMPRESS", compress},
                                                    {"NCCL_DEBUG", "WARN"}},
                                                   outcome)),
                      "its codecs lose something");
  };
  EXPECT_EQ(warnings("off", "exact"), 1);
  EXPECT_EQ(warnings("all_gather=int8", "exact"), 1);
  EXPECT_EQ(warnings("all_gather=int8,imported", "loses"), 0);
  EXPECT_EQ(warnings("all_reduce=int8", "loses"), 0);
  // Another codec was asked for: the built-in plan has it.
  EXPECT_EQ(warnings("all_reduce=int4", "loses"), 1);
}

// The argument is the file.
WEFT_SCENARIO(named_import) {
  with_communicator(context, [&](ncclComm_t comm) {
    EXPECT_NE(plan_of(comm), context.argument);
    WEFT_OK(weftCommSetCompression(comm, "imported"));
    EXPECT_EQ(plan_of(comm), context.argument);
    EXPECT_TRUE(loses(comm));
    weftCompression_t report{};
    WEFT_OK(weftCompressionReport(comm, &report));
    EXPECT_EQ(report.calls, 1u);
    EXPECT_LT(report.bytes_after, report.bytes_before);
  });
}

TEST(CompressionSettings, CountWhatImportedSchedulesSave) {
  const CodedFile file;
  run_ranks_as_processes("named_import", 2,
                         with_variables({{"WEFT_SCHEDULES", file.path()}}, file.path()));
}

}  // namespace
}  // namespace weft::test
