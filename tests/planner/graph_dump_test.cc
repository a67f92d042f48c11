// The plans as NCCL's graphs: which schedules are rings, and the file that a rank writes at init.
#include "src/planner/graph_dump.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "algorithms/generators/generators.h"
#include "include/nccl.h"
#include "tests/support/environment.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

constexpr Collective kFour = {CollectiveKind::kAllReduce, 4, 0};

TEST(GraphDump, KnowsRings) {
  const std::vector<std::vector<int>> rings = rings_of(kRing.make(kFour, false));
  ASSERT_FALSE(rings.empty());
  for (const std::vector<int>& ring : rings) EXPECT_EQ(ring, (std::vector<int>{0, 1, 2, 3}));
}

TEST(GraphDump, TakesNoOtherShapeForARing) {
  EXPECT_TRUE(rings_of(kTree.make(kFour, false)).empty());
  EXPECT_TRUE(rings_of(kOneShot.make(kFour, false)).empty());
}

// A folder whose files a test looks at.
class Dumped : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("weft-graphs." + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return (folder_ / "graphs.xml").string(); }
  // The file after an init of so many ranks.
  std::string after_init(int nranks, const char* writer, const char* plan) const {
    const ScopedEnvironment environment{{"NCCL_GRAPH_DUMP_FILE", path()},
                                        {"NCCL_GRAPH_DUMP_FILE_RANK", writer},
                                        {"WEFT_PLAN", plan}};
    run_ranks_as_threads(nranks, [](int, ncclComm_t) {});
    std::ostringstream text;
    text << std::ifstream(path()).rdbuf();
    return text.str();
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_),
                                             std::filesystem::directory_iterator()));
  }

  std::filesystem::path folder_;
};

TEST_F(Dumped, FileHasTheRingsThatRun) {
  const std::string text = after_init(3, "0", "all_reduce=ring");
  EXPECT_TRUE(text.starts_with("<graphs version=\"1\">\n")) << text;
  EXPECT_TRUE(text.ends_with("</graphs>\n")) << text;
  EXPECT_NE(text.find("<graph id=\"0\" pattern=\"4\" nchannels=\"1\" collective=\"all_reduce\" "
                      "plan=\"ring\" path=\"fifos\" minbytes=\"256\""),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("<channel>\n      <gpu rank=\"0\"/>\n      <gpu rank=\"1\"/>\n      "
                      "<gpu rank=\"2\"/>\n    </channel>"),
            std::string::npos)
      << text;
  EXPECT_EQ(files(), 1u) << "nothing is left beside the file";
}

TEST_F(Dumped, FileListsWhoSendsToWhomInOtherPlans) {
  const std::string text = after_init(4, "0", "all_reduce=tree");
  EXPECT_NE(text.find("collective=\"all_reduce\" plan=\"tree\""), std::string::npos) << text;
  EXPECT_NE(text.find("<link channel=\"0\" from=\"1\" to=\"0\"/>"), std::string::npos) << text;
}

TEST_F(Dumped, FileIsWrittenByTheRankThatIsAsked) {
  EXPECT_EQ(after_init(2, "5", "all_reduce=ring"), "") << "there is no such rank";
  EXPECT_NE(after_init(2, "1", "all_reduce=ring"), "");
}

// The name of a device stays one.
TEST_F(Dumped, FileReplacesNoDevice) {
  std::filesystem::create_directory(path());
  after_init(2, "0", "all_reduce=ring");
  EXPECT_TRUE(std::filesystem::is_directory(path()));
  EXPECT_EQ(files(), 1u);
}

}  // namespace
}  // namespace weft::test
