// Observers of a communicator: profiler plugins of every version, and the timeline of WEFT_TRACE.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "tests/comm/checks.h"
#include "tests/support/processes.h"

namespace weft::test {
namespace {

std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  unlink(path.c_str());
  return text.str();
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) found++;
  return found;
}

// An all_reduce, then a broadcast and a send/recv in one group.
WEFT_SCENARIO(some_calls) {
  with_communicator(context, [&](ncclComm_t comm) {
    std::vector<float> data(40000, 1.0f), other(40000);
    // Rank 0 has to wait for data.
    if (context.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    WEFT_OK(ncclAllReduce(data.data(), other.data(), 40000, ncclFloat, ncclSum, comm, nullptr));
    WEFT_OK(ncclGroupStart());
    WEFT_OK(ncclBroadcast(data.data(), data.data(), 7, ncclFloat, 1, comm, nullptr));
    WEFT_OK(ncclSend(data.data() + 100, 9, ncclFloat, 1 - context.rank, comm, nullptr));
    WEFT_OK(ncclRecv(data.data() + 200, 9, ncclFloat, 1 - context.rank, comm, nullptr));
    WEFT_OK(ncclGroupEnd());
  });
}

class ProfilerOf : public testing::TestWithParam<int> {};

TEST_P(ProfilerOf, SeesGroupsAndCallsBeginAndEnd) {
  const int version = GetParam();
  const std::string path = "/tmp/weft-profile." + std::to_string(getpid()) + ".";
  ProcessOptions options;
  options.environment = [&](int rank) -> std::map<std::string, std::string> {
    return {{"NCCL_PROFILER_PLUGIN",
             WEFT_TEST_PROFILERS "/libnccl-profiler-test" + std::to_string(version) + ".so"},
            {"WEFT_TEST_RANK", std::to_string(rank)},
            {"WEFT_TEST_PROFILE", path}};
  };
  run_ranks_as_processes("some_calls", 2, options);
  for (int rank = 0; rank < 2; rank++) {
    const std::string seen = contents(path + std::to_string(rank));
    SCOPED_TRACE(seen);
    const std::string type = version == 1 ? "7" : "ncclFloat32";
    const auto call = [&](const char* number, const char* name) {
      return (version == 1 ? number : name) + (" " + type);
    };
    EXPECT_EQ(count(seen, "coll " + call("4", "AllReduce") + " count 40000 root 0 sequence 0"), 1u);
    EXPECT_EQ(count(seen, "coll " + call("0", "Broadcast") + " count 7 root 1 sequence 1"), 1u);
    const std::string peer = " count 9 peer " + std::to_string(1 - rank);
    EXPECT_EQ(count(seen, "p2p " + call("6", "Send") + peer), 1u);
    EXPECT_EQ(count(seen, "p2p " + call("7", "Recv") + peer), 1u);
    EXPECT_EQ(count(seen, "start "), count(seen, "stop "));
    EXPECT_EQ(count(seen, "kind 1 "), 2u);                        // groups
    EXPECT_EQ(count(seen, "kind 256 "), version == 5 ? 2u : 0u);  // ncclGroupEnd and similar calls
    EXPECT_EQ(count(seen, "kind 512 "), version == 5 ? 2u : 0u);  // calls
    EXPECT_EQ(count(seen, "kind 1024 "), version == 5 ? 2u : 0u);
    EXPECT_EQ(count(seen, "finalize"), 1u);
    EXPECT_EQ(count(seen, std::to_string(rank) + " of 2"), version >= 4 ? 1u : 0u);
    // The parent of a call is its group, or in version 5 the API call.
    EXPECT_NE(seen.find(version == 5 ? "start 4 kind 2 parent 3" : "start 2 kind 2 parent 1"),
              std::string::npos);
  }
}
INSTANTIATE_TEST_SUITE_P(Versions, ProfilerOf, testing::Range(1, 6));

TEST(Profiler, ThatCannotBeLoadedLeavesTheJobAlone) {
  ProcessOptions options;
  options.environment = [](int) -> std::map<std::string, std::string> {
    return {{"NCCL_PROFILER_PLUGIN", "no-such-thing"}};
  };
  run_ranks_as_processes("some_calls", 2, options);
}

TEST(Timeline, HasOperationsLanesAndPeersOfAllProcesses) {
  const std::string path = "/tmp/weft-trace." + std::to_string(getpid()) + ".json";
  std::ofstream(path) << "[old]\n";  // a file of another job is overwritten
  ProcessOptions options;
  options.environment = [&](int) -> std::map<std::string, std::string> {
    return {{"WEFT_TRACE", path}};
  };
  run_ranks_as_processes("some_calls", 2, options);
  const std::string seen = contents(path);
  EXPECT_EQ(seen.find("old"), std::string::npos);
  EXPECT_EQ(seen.substr(0, 2), "[{");
  EXPECT_EQ(seen.substr(std::max<size_t>(3, seen.size()) - 3), "\n]\n");
  for (const char* rank : {"\"rank 0 of 2\"", "\"rank 1 of 2\""}) EXPECT_EQ(count(seen, rank), 1u);
  EXPECT_EQ(count(seen, R"("name":"all_reduce")"), 2u);
  EXPECT_EQ(count(seen, R"("name":"broadcast")"), 2u);
  EXPECT_GE(count(seen, R"("args":{"name":"lane 0"})"), 2u);
  EXPECT_EQ(count(seen, R"("args":{"name":"to rank 0"})"), 1u);
  EXPECT_EQ(count(seen, R"("args":{"name":"to rank 1"})"), 1u);
  EXPECT_GE(count(seen, R"("name":"wait for data")"), 1u);
  // Valid JSON has an object in every line, and a comma after all but the last.
  std::istringstream lines(seen);
  size_t objects = 0, commas = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(std::count(line.begin(), line.end(), '{'), std::count(line.begin(), line.end(), '}'));
    objects += line.find('{') != std::string::npos ? 1u : 0u;
    commas += !line.empty() && line.back() == ',' ? 1u : 0u;
  }
  EXPECT_EQ(commas + 1, objects);
}

TEST(Timeline, HasWhatLinksToOtherHostsCarry) {
  const std::string path = "/tmp/weft-trace-links." + std::to_string(getpid()) + ".json";
  ProcessOptions options;
  options.environment = [&](int rank) {
    auto variables = separate_hosts(rank);
    variables["WEFT_TRACE"] = path;
    return variables;
  };
  run_ranks_as_processes("some_calls", 2, options);
  const std::string seen = contents(path);
  std::map<std::string, uint64_t> bytes;
  std::map<std::pair<double, double>, double> ends;  // the end of the last span of each row
  std::istringstream lines(seen);
  for (std::string line; std::getline(lines, line);) {
    const auto number = [&](const std::string& name) {
      const size_t at = line.find("\"" + name + "\":");
      return at == std::string::npos ? 0.0 : std::stod(line.substr(at + name.size() + 3));
    };
    for (const std::string name : {"network send", "network receive"}) {
      if (line.find("\"name\":\"" + name + "\"") == std::string::npos) continue;
      bytes[name] += static_cast<uint64_t>(number("bytes"));
      double& end = ends[{number("pid"), number("tid")}];
      EXPECT_GE(number("ts") + 0.002, end) << line;  // rounded
      end = number("ts") + number("dur");
    }
  }
  // Both ranks' all_reduce, one rank's broadcast, both ranks' send/recv.
  EXPECT_EQ(bytes["network send"], 2 * 160000u + 28u + 2 * 36u);
  EXPECT_EQ(bytes["network receive"], bytes["network send"]);
  for (const char* row : {"network to rank 1, channel 0", "network from rank 1, channel 0",
                          "network to rank 0, channel 2", "network from rank 0, channel 2"})
    EXPECT_EQ(count(seen, row), 1u) << row;
}

}  // namespace
}  // namespace weft::test
