// WEFT_TOPO with fake hosts: the plan that runs is the one that weft explain names.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "include/weft.h"
#include "tests/support/processes.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 8;
constexpr const char* kTopo = "pcie-4xx2";  // two hosts of four GPUs

// "all_reduce 65536 plan" in every line. Runs an all_reduce of each size.
WEFT_SCENARIO(runs_what_was_explained) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, context.nranks, context.ids[0], context.rank), ncclSuccess)
      << ncclGetLastError(nullptr);
  std::istringstream lines(context.argument);
  std::string collective, explained;
  size_t bytes = 0;
  while (lines >> collective >> bytes >> explained) {
    const char* plan = nullptr;
    ASSERT_EQ(weftPlanOf(comm, collective.c_str(), bytes, &plan), ncclSuccess);
    EXPECT_EQ(plan, explained) << collective << " " << bytes;
    if (collective != "all_reduce") continue;
    std::vector<int> data(bytes / sizeof(int), context.rank + 1), sum(data.size());
    ASSERT_EQ(
        ncclAllReduce(data.data(), sum.data(), data.size(), ncclInt32, ncclSum, comm, nullptr),
        ncclSuccess);
    EXPECT_EQ(std::accumulate(sum.begin(), sum.end(), int64_t{0}),
              int64_t{kRanks} * (kRanks + 1) / 2 * static_cast<int64_t>(sum.size()));
  }
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

std::string explained(const char* collective, size_t bytes) {
  const std::string command = std::string(WEFT_COMMAND) + " explain " + kTopo + " --coll " +
                              collective + " --size " + std::to_string(bytes) + " --json";
  std::string said;
  FILE* pipe = popen(command.c_str(), "r");
  for (int c = 0; pipe != nullptr && (c = fgetc(pipe)) != EOF;) said += static_cast<char>(c);
  EXPECT_EQ(pclose(pipe), 0) << command;
  const std::string key = R"("size":)";
  const size_t at = said.find(R"("plan":")", said.find(key)) + 8;
  return said.substr(at, said.find('"', at) - at);
}

TEST(Emulation, RunsThePlansThatExplainNamesOnFakeHosts) {
  std::string folder = (fs::temp_directory_path() / "weft-emulation-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string trace = folder + "/trace.json";
  // Both take the schedules from one cache.
  setenv("WEFT_CACHE", folder.c_str(), 1);
  setenv("WEFT_SYNTHESIS_SECONDS", "20", 1);
  ProcessOptions options;
  options.limit = std::chrono::seconds(120);
  std::vector<std::string> plans;
  for (const char* collective : {"all_reduce", "all_gather", "reduce_scatter", "broadcast"})
    for (const size_t bytes : {size_t{1} << 10, size_t{1} << 20, size_t{16} << 20}) {
      const std::string plan = explained(collective, bytes);
      if (std::string(collective) == "all_reduce") plans.push_back(plan);
      options.argument += std::string(collective) + " " + std::to_string(bytes) + " " + plan + "\n";
    }
  options.environment = [&](int rank) {
    return std::map<std::string, std::string>{
        {"WEFT_TOPO", kTopo}, {"WEFT_TRACE", trace}, {"NCCL_HOSTID", rank < 4 ? "one" : "two"}};
  };
  run_ranks_as_processes("runs_what_was_explained", kRanks, options);
  unsetenv("WEFT_SYNTHESIS_SECONDS");
  setenv("WEFT_CACHE", "none", 1);
  std::ostringstream seen;
  seen << std::ifstream(trace).rdbuf();
  for (const std::string& plan : plans) {
    const std::string wanted = "\"plan\":\"" + plan + "\"";
    EXPECT_NE(seen.str().find(wanted), std::string::npos) << plan << " is not in the timeline";
  }
  EXPECT_NE(plans.back().find("synth-"), std::string::npos) << plans.back();
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

}  // namespace
}  // namespace weft::test
