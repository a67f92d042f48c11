// Log lines: NCCL's format, its levels and subsystems, and the file they go to.
#include "src/base/log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>

#include "nccl.h"
#include "src/base/log_time.h"
#include "tests/support/environment.h"

namespace weft::test {
namespace {

std::string host() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return std::string(name).substr(0, std::string(name).find('.'));
}

std::string who(const char* device) {
  std::ostringstream out;
  out << host() << ':' << getpid() << ':' << syscall(SYS_gettid) << " [" << device << "] ";
  return out.str();
}

// Reads the lines that log() writes with this environment.
class Log : public testing::Test {
 protected:
  std::string lines(const char* level, const char* subsystems, void (*log)()) {
    const std::string pattern = "/tmp/weft-log-test.%h.%p.%%.txt";
    const std::string path =
        "/tmp/weft-log-test." + host() + "." + std::to_string(getpid()) + ".%.txt";
    std::optional<std::string> wanted;
    if (subsystems != nullptr) wanted = subsystems;
    const ScopedEnvironment environment{{"NCCL_DEBUG", level},
                                        {"NCCL_DEBUG_SUBSYS", wanted},
                                        {"NCCL_DEBUG_FILE", pattern},
                                        {"NCCL_DEBUG_TIMESTAMP_LEVELS", stamped_}};
    log::reset();
    log();
    log::reset();
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    unlink(path.c_str());
    return text.str();
  }
  void SetUp() override { log::set_thread_device(2); }
  void TearDown() override { log::reset(); }
  std::string stamped_ = "NONE";
};

TEST_F(Log, InfoLinesHaveHostPidThreadAndDevice) {
  const std::string text = lines("INFO", "ALL", [] {
    WEFT_INFO(kInit, "{} ranks", 8);
    log::set_thread_device(3);
    WEFT_INFO(kInit, "second line");
  });
  EXPECT_EQ(text, who("2") + "NCCL INFO 8 ranks\n" + who("3") + "NCCL INFO second line\n");
}

TEST_F(Log, ThreadsThatUsedNoCommunicatorShowADeviceOfTheProcess) {
  const std::string text =
      lines("INFO", "ALL", [] { std::thread([] { WEFT_INFO(kInit, "helper"); }).join(); });
  EXPECT_EQ(text.find("[-1]"), std::string::npos) << text;
  EXPECT_NE(text.find("NCCL INFO helper"), std::string::npos) << text;
}

TEST_F(Log, WarningsHaveTheTimeUnlessTheUserSaysOtherwise) {
  const std::regex time("\n\\[20[0-9-]{8} [0-9:]{8}\\] [^ ]+ \\[2\\] ");
  const auto warn = [] { WEFT_WARN("it broke"); };
  EXPECT_FALSE(std::regex_search(lines("WARN", nullptr, warn), time));
  stamped_ = "";
  EXPECT_TRUE(std::regex_search(lines("WARN", nullptr, warn), time));
}

TEST(TimeStamps, AreForTheNamedLevels) {
  using log::Level;
  const auto bit = [](Level level) { return 1u << static_cast<int>(level); };
  EXPECT_EQ(log::stamped_levels("WARN"), bit(Level::kWarn));
  EXPECT_EQ(log::stamped_levels("warn,Info"), bit(Level::kWarn) | bit(Level::kInfo));
  EXPECT_EQ(log::stamped_levels("nonsense"), 0u);
  EXPECT_EQ(log::stamped_levels("^TRACE,ABORT,VERSION"), bit(Level::kWarn) | bit(Level::kInfo));
}

TEST(TimeStamps, HaveTheFormThatTheUserWants) {
  const ScopedEnvironment zone{{"TZ", "UTC"}};
  tzset();
  const timespec time{1700000000, 98765432};
  EXPECT_EQ(log::stamp("[%F %T] ", time), "[2023-11-14 22:13:20] ");
  EXPECT_EQ(log::stamp("%T.%3f_%9f%%f_", time), "22:13:20.098 098765432%f ");
  EXPECT_EQ(log::stamp("", time), "");
}

TEST_F(Log, WarningsNameFileAndLineAfterAnEmptyLine) {
  const std::string text = lines("WARN", nullptr, [] { WEFT_WARN("it {}", "broke"); });
  const std::string begin = "\n" + who("2") + "log_test.cc:", end = " NCCL WARN it broke\n";
  ASSERT_GT(text.size(), begin.size() + end.size()) << text;
  EXPECT_EQ(text.substr(0, begin.size()), begin);
  EXPECT_EQ(text.substr(text.size() - end.size()), end);
}

TEST_F(Log, LevelsIncludeTheOnesBelow) {
  const auto log = [] {
    WEFT_WARN("warning");
    WEFT_INFO(kInit, "information");
  };
  const auto has = [](const std::string& text, const char* word) {
    return text.find(word) != std::string::npos;
  };
  for (const char* level : {"", "NONE", "VERSION", "nonsense"})
    EXPECT_EQ(lines(level, "ALL", log), "") << level;
  EXPECT_TRUE(has(lines("WARN", "ALL", log), "warning"));
  EXPECT_FALSE(has(lines("WARN", "ALL", log), "information"));
  for (const char* level : {"INFO", "info", "TRACE"}) {
    EXPECT_TRUE(has(lines(level, "ALL", log), "warning")) << level;
    EXPECT_TRUE(has(lines(level, "ALL", log), "information")) << level;
  }
}

TEST_F(Log, SubsystemsAreChosenByNameOrByExclusion) {
  const auto log = [] {
    WEFT_INFO(kInit, "a");
    WEFT_INFO(kNet, "b");
    WEFT_INFO(kColl, "c");
  };
  const auto seen = [&](const char* subsystems) {
    std::string letters;
    std::istringstream text(lines("INFO", subsystems, log));
    for (std::string line; std::getline(text, line);) letters += line.back();
    return letters;
  };
  EXPECT_EQ(seen(nullptr), "a");  // INIT, BOOTSTRAP and ENV, as in NCCL
  EXPECT_EQ(seen("NET"), "b");
  EXPECT_EQ(seen("net,COLL"), "bc");
  EXPECT_EQ(seen("^COLL"), "ab");
  EXPECT_EQ(seen("^INIT,COLL"), "b");
  EXPECT_EQ(seen("ALL"), "abc");
  EXPECT_EQ(seen("UNKNOWN"), "");
}

TEST_F(Log, GoesToStandardOutputByDefaultAndToStandardErrorIfNamed) {
  {
    const ScopedEnvironment environment{
        {"NCCL_DEBUG", "INFO"}, {"NCCL_DEBUG_SUBSYS", {}}, {"NCCL_DEBUG_FILE", {}}};
    log::reset();
    testing::internal::CaptureStdout();
    WEFT_INFO(kInit, "here");
    EXPECT_EQ(testing::internal::GetCapturedStdout(), who("2") + "NCCL INFO here\n");
  }
  {
    const ScopedEnvironment environment{{"NCCL_DEBUG", "INFO"}, {"NCCL_DEBUG_FILE", "stderr"}};
    log::reset();
    testing::internal::CaptureStderr();
    WEFT_INFO(kInit, "there");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), who("2") + "NCCL INFO there\n");
  }
}

TEST_F(Log, FallsBackToStandardOutputWhereTheFileCannotBeOpened) {
  const ScopedEnvironment environment{{"NCCL_DEBUG", "INFO"},
                                      {"NCCL_DEBUG_FILE", "/nonexistent/folder/file"}};
  log::reset();
  testing::internal::CaptureStdout();
  WEFT_INFO(kInit, "here");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), who("2") + "NCCL INFO here\n");
}

TEST_F(Log, SaysOnStandardErrorWhyTheFileIsNotUsed) {
  std::string folder = testing::TempDir() + "weft-log-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string fifo = folder + "/fifo", link = folder + "/link", target = folder + "/target";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  ASSERT_EQ(symlink(target.c_str(), link.c_str()), 0);
  ASSERT_EQ(chmod(folder.c_str(), 0777), 0);
  for (const std::string& path : {fifo, link}) {
    const ScopedEnvironment environment{{"NCCL_DEBUG", "INFO"}, {"NCCL_DEBUG_FILE", path}};
    log::reset();
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    WEFT_INFO(kInit, "here");
    WEFT_INFO(kInit, "there");
    EXPECT_EQ(testing::internal::GetCapturedStdout(),
              who("2") + "NCCL INFO here\n" + who("2") + "NCCL INFO there\n");
    const std::string told = testing::internal::GetCapturedStderr();
    EXPECT_NE(told.find("NCCL_DEBUG_FILE: " + path + ": is a "), std::string::npos) << told;
    EXPECT_EQ(told.find('\n'), told.size() - 1) << "once: " << told;
  }
  EXPECT_FALSE(std::filesystem::exists(target));
  std::filesystem::remove_all(folder);
}

TEST_F(Log, GoesToWhateverStandardErrorIs) {
  for (const char* path : {"/dev/stderr", "/dev/fd/2"}) {
    const ScopedEnvironment environment{{"NCCL_DEBUG", "INFO"}, {"NCCL_DEBUG_FILE", path}};
    log::reset();
    testing::internal::CaptureStderr();
    WEFT_INFO(kInit, "there");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), who("2") + "NCCL INFO there\n") << path;
  }
}

TEST(ResetDebugInit, MakesTheLibraryReadTheEnvironmentAgain) {
  const auto output = [](const char* level) {
    const ScopedEnvironment environment{
        {"NCCL_DEBUG", level}, {"NCCL_DEBUG_SUBSYS", "ALL"}, {"NCCL_DEBUG_FILE", {}}};
    ncclResetDebugInit();
    testing::internal::CaptureStdout();
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    return testing::internal::GetCapturedStdout();
  };
  EXPECT_EQ(output(""), "");
  EXPECT_NE(output("INFO").find(" NCCL INFO "), std::string::npos);
  EXPECT_EQ(output("WARN"), "");
  ncclResetDebugInit();
}

}  // namespace
}  // namespace weft::test
