// Log lines that tools read, in NCCL's form.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "tests/comm/checks.h"
#include "tests/support/environment.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

// What the library logs at INFO while `work` runs.
std::string logged(const char* subsystems, const std::function<void()>& work) {
  const std::string path = "/tmp/weft-log-lines." + std::to_string(getpid());
  {
    const ScopedEnvironment environment{{"NCCL_DEBUG", "INFO"},
                                        {"NCCL_DEBUG_SUBSYS", subsystems},
                                        {"NCCL_DEBUG_TIMESTAMP_LEVELS", "INFO"},
                                        {"NCCL_DEBUG_TIMESTAMP_FORMAT", "<%Y_%3f>"},
                                        {"NCCL_DEBUG_FILE", path}};
    ncclResetDebugInit();
    work();
  }
  ncclResetDebugInit();
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  unlink(path.c_str());
  return text.str();
}

void expect_line(const std::string& text, const std::string& line) {
  EXPECT_TRUE(std::regex_search(text, std::regex(line))) << line << " is not in\n" << text;
}

TEST(LogLines, OfAnInitSayWhoBeginsAndIsComplete) {
  const std::string text = logged("INIT", [] {
    const ncclUniqueId id = new_unique_id();
    ncclComm_t comm = nullptr;
    WEFT_OK(ncclCommInitRank(&comm, 1, id, 0));
    WEFT_OK(ncclCommDestroy(comm));
  });
  const std::string who =
      "ncclCommInitRank comm 0x[0-9a-f]+ rank 0 nranks 1 cudaDev 0 nvmlDev -1 busId [0-9a-f]+ "
      "commId 0x[0-9a-f]+ - Init ";
  expect_line(text, "\\[0\\] NCCL INFO \\[Rank 0\\] " + who + "START\n");
  expect_line(text, "\\[0\\] NCCL INFO " + who + "COMPLETE\n");
  EXPECT_EQ(text.find("[-1]"), std::string::npos) << "a line without device\n" << text;
}

// A host is looked at once per process and file.
TEST(LogLines, OfAnInitSayHowTheHostWasLookedAtAndWhatWasAmiss) {
  const std::string nowhere = "/nowhere/log-lines.xml";
  const ScopedEnvironment environment{{"NCCL_TOPO_FILE", nowhere}};
  const std::string text = logged("INIT", [] { const CommSet set(2); });
  expect_line(text,
              "this host was looked at by (hwloc|/sys) in [0-9.]+ ms: [0-9]+ GPUs, [0-9]+ NICs\n");
  const bool by_sys = text.find("looked at by /sys") != std::string::npos;
  EXPECT_EQ(text.find(": /sys is used instead") != std::string::npos, by_sys) << text;
  expect_line(text, "NCCL INFO .*" + nowhere);
}

TEST(LogLines, OfCallsHaveAllTheirArguments) {
  const std::string text = logged("COLL", [] {
    CommSet set(1);
    float x = 1;
    WEFT_OK(ncclAllReduce(&x, &x, 1, ncclFloat32, ncclMax, set[0], nullptr));
    WEFT_OK(ncclBroadcast(&x, &x, 1, ncclFloat32, 0, set[0], nullptr));
    WEFT_OK(ncclGroupStart());
    WEFT_OK(ncclSend(&x, 1, ncclInt8, 0, set[0], nullptr));
    WEFT_OK(ncclRecv(&x, 1, ncclInt8, 0, set[0], nullptr));
    WEFT_OK(ncclGroupEnd());
  });
  const std::string end = " comm 0x[0-9a-f]+ \\[nranks=1\\] stream (0x0|\\(nil\\))\n";
  expect_line(text,
              "NCCL INFO AllReduce: opCount 0 sendbuff 0x[0-9a-f]+ recvbuff 0x[0-9a-f]+ "
              "count 1 datatype 7 op 2 root 0" +
                  end);
  expect_line(text, "NCCL INFO Broadcast: opCount 1 .* count 1 datatype 7 op 0 root 0" + end);
  expect_line(text, "NCCL INFO Send: opCount 2 .* count 1 datatype 0 op 0 root 0" + end);
  expect_line(text, "NCCL INFO Recv: opCount 3 ");
}

TEST(LogLines, HaveTheTimeWhereTheUserWantsIt) {
  const std::string text = logged("COLL", [] {
    CommSet set(1);
    float x = 1;
    WEFT_OK(ncclAllReduce(&x, &x, 1, ncclFloat32, ncclMax, set[0], nullptr));
  });
  expect_line(text,
              "^<20[0-9][0-9] [0-9][0-9][0-9]>[^ ]+:[0-9]+:[0-9]+ \\[0\\] NCCL INFO AllReduce");
}

TEST(LogLines, NameFieldsOfAConfigThatDoNothing) {
  const std::string text = logged("INIT", [] {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.cgaClusterSize = 2;
    config.minCTAs = 3;
    ncclComm_t comm = nullptr;
    WEFT_OK(ncclCommInitRankConfig(&comm, 1, new_unique_id(), 0, &config));
    WEFT_OK(ncclCommDestroy(comm));
  });
  expect_line(text, "NCCL INFO .*config: cgaClusterSize=2 has no effect: ");
  expect_line(text, "NCCL WARN .*config: minCTAs=3 has no effect: ");
}

}  // namespace
}  // namespace weft::test
