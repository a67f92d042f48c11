// Files that could hang a reader, fill its memory or lead it elsewhere are refused by name.
#include "src/base/regular_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "src/base/config.h"
#include "src/base/error.h"
#include "tests/support/environment.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;

class RegularFile : public testing::Test {
 protected:
  RegularFile() {
    std::string folder = testing::TempDir() + "weft-files-XXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  ~RegularFile() override { fs::remove_all(folder_); }

  std::string file(const char* name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  static void expect_refused(const std::string& path, const std::string& reason) {
    try {
      read_regular_file(path, 100);
      ADD_FAILURE() << "read " << path;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  }

  fs::path folder_;
};

TEST_F(RegularFile, IsReadWholeUpToTheLimit) {
  EXPECT_EQ(read_regular_file(file("a", ""), 100), "");
  EXPECT_EQ(read_regular_file(file("b", std::string(100, 'x')), 100), std::string(100, 'x'));
  expect_refused(file("c", std::string(101, 'x')), "more than 100 bytes");
  expect_refused(folder_ / "missing", "cannot be opened");
  EXPECT_FALSE(read_if_readable(folder_ / "missing", 100).has_value());
}

TEST_F(RegularFile, IsNoFifoDeviceOrFolder) {
  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  expect_refused(fifo, "is a FIFO");
  expect_refused("/dev/zero", "is a device");
  expect_refused(folder_, "is a folder");
  EXPECT_THROW(read_if_readable(fifo, 100), Error);
}

TEST_F(RegularFile, MayBeALinkOnlyWhereNobodyElseWrites) {
  const std::string target = file("target", "text");
  const std::string link = folder_ / "link";
  ASSERT_EQ(symlink(target.c_str(), link.c_str()), 0);
  EXPECT_EQ(read_regular_file(link, 100), "text");
  ASSERT_EQ(chmod(folder_.c_str(), 0770), 0);
  EXPECT_EQ(read_regular_file(link, 100), "text") << "a group's folder is its members' own matter";
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  expect_refused(link, "is a link");
  EXPECT_EQ(read_regular_file(target, 100), "text");
}

// Opens the path, and says why that was refused; empty: it was not.
std::string refused_write(const std::string& path, Content content = Content::kReplaced) {
  try {
    open_to_write(path, content);
    return "";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    return error.what();
  }
}

TEST_F(RegularFile, IsReplacedOrKeptWhereItIsWritten) {
  const std::string path = folder_ / "log";
  write_whole_file(path, "a long text");
  write_whole_file(path, "text");
  EXPECT_EQ(read_regular_file(path, 100), "text");
  EXPECT_EQ(refused_write(path, Content::kKept), "");
  EXPECT_EQ(read_regular_file(path, 100), "text");
  EXPECT_EQ(refused_write(path), "");
  EXPECT_EQ(read_regular_file(path, 100), "");
  EXPECT_NE(refused_write(folder_ / "missing" / "log").find("cannot be opened"), std::string::npos);
}

TEST_F(RegularFile, IsNoLinkWhereOthersWriteAndWeftWrites) {
  const std::string target = file("target", "text");
  fs::create_directory(folder_ / "shared");
  const std::string link = folder_ / "shared" / "link", hard = folder_ / "shared" / "hard";
  const std::string dangling = folder_ / "shared" / "dangling";
  ASSERT_EQ(symlink(target.c_str(), link.c_str()), 0);
  ASSERT_EQ(symlink((folder_ / "new").c_str(), dangling.c_str()), 0);
  ASSERT_EQ(::link(target.c_str(), hard.c_str()), 0);
  ASSERT_EQ(chmod((folder_ / "shared").c_str(), 0777), 0);
  for (const std::string& path : {link, hard, dangling})
    for (const Content content : {Content::kReplaced, Content::kKept})
      EXPECT_NE(refused_write(path, content).find("is a link in a folder"), std::string::npos)
          << path;
  EXPECT_EQ(read_regular_file(target, 100), "text");
  EXPECT_FALSE(fs::exists(folder_ / "new"));
  EXPECT_EQ(refused_write(folder_ / "shared" / "file"), "");
  ASSERT_EQ(chmod((folder_ / "shared").c_str(), 0755), 0);
  EXPECT_EQ(refused_write(link, Content::kKept), "");
}

TEST_F(RegularFile, IsNoFifoThatNobodyReads) {
  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_NE(refused_write(fifo).find("is a FIFO that nobody reads"), std::string::npos);
  EXPECT_NE(refused_write(fifo, Content::kKept).find("is a FIFO, not"), std::string::npos);
  const Fd reader(open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader);
  const Fd writer = open_to_write(fifo);
  EXPECT_EQ(fcntl(writer.get(), F_GETFL) & O_NONBLOCK, 0) << "a slow reader must not lose lines";
  EXPECT_EQ(write(writer.get(), "text", 4), 4);
  char got[5] = {};
  EXPECT_EQ(read(reader.get(), got, 4), 4);
  EXPECT_STREQ(got, "text");
  EXPECT_EQ(refused_write("/dev/null"), "");
}

TEST_F(RegularFile, IsWhatTheConfigurationMustBe) {
  const std::string fifo = folder_ / "conf";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, std::string("/dev/zero")}) {
    const ScopedEnvironment environment{{"NCCL_CONF_FILE", path.c_str()}};
    try {
      Config::from_environment().require_valid();
      ADD_FAILURE() << "took " << path;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace weft::test
