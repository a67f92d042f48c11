// Hostile files. Reading them ends soon, with an error of one line, and without much memory.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "algorithms/generators/generators.h"
#include "src/base/error.h"
#include "src/schedule/msccl_xml.h"
#include "src/schedule/schedule_json.h"
#include "tests/support/cpu_time.h"

namespace weft::test {
namespace {

// The error for a text, within two seconds. "" if it is read and proved.
std::string fate(const std::string& text) {
  const double start = cpu_seconds();
  std::string result;
  try {
    prove(parse_schedule(text, "file"), 2);
  } catch (const Error& error) {
    result = error.what();
    EXPECT_NE(result, "");
    EXPECT_EQ(result.find('\n'), std::string::npos) << result;
    EXPECT_LT(result.size(), 500u) << result;
  }
  EXPECT_TRUE(in_time(cpu_seconds() - start, 2)) << text.substr(0, 200);
  return result;
}

std::string ring(bool xml) {
  ScheduleFile file;
  file.schedule = kRing.make({CollectiveKind::kAllReduce, 3, 0}, true);
  return xml ? write_msccl_xml(file) : write_schedule_json(file);
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; i++) out += text;
  return out;
}

TEST(BadScheduleFiles, AreRefusedWhereverTheyBreakOff) {
  for (const bool xml : {true, false}) {
    const std::string whole = ring(xml);
    ASSERT_EQ(fate(whole), "");
    for (size_t size = 0; size + 2 < whole.size(); size++)
      EXPECT_NE(fate(whole.substr(0, size)), "") << size << " bytes of " << whole.size();
  }
}

TEST(BadScheduleFiles, NestedAMillionDeepAreRefused) {
  const int deep = 1 << 20;
  EXPECT_NE(fate(repeated("<a>", deep)), "");
  EXPECT_NE(fate(repeated("<algo>", deep) + repeated("</algo>", deep)), "");
  EXPECT_NE(fate("{\"weft_schedule\": " + repeated("[", deep)), "");
  EXPECT_NE(fate(repeated("{\"weft_schedule\":", deep)), "");
  EXPECT_NE(fate("<!DOCTYPE a " + repeated("<![", deep)), "");
  EXPECT_NE(fate("<!DOCTYPE a [" + repeated("<!ELEMENT ", deep)), "");
}

TEST(BadScheduleFiles, WithEntitiesThatMultiplyAreNotExpanded) {
  std::string text = "<!DOCTYPE algo [<!ENTITY a0 \"ha\">";
  for (int i = 1; i < 30; i++)
    text += fmt::format("<!ENTITY a{} \"{}\">", i, repeated(fmt::format("&a{};", i - 1), 10));
  text +=
      "]><algo name=\"&a29;\" ngpus=\"1\" nchunksperloop=\"1\" coll=\"allreduce\" "
      "inplace=\"1\"><gpu id=\"0\"/></algo>";
  EXPECT_EQ(fate(text), "");
  EXPECT_EQ(parse_schedule(text, "file").schedule.name, "&a29;");
}

TEST(BadScheduleFiles, WithHugeNumbersAreRefusedBeforeAnythingIsAllocated) {
  const auto algo = [](const std::string& attributes, const std::string& gpu) {
    return "<algo coll=\"allreduce\" inplace=\"1\" " + attributes + "><gpu id=\"0\"" + gpu +
           "></gpu></algo>";
  };
  const std::string usual = "ngpus=\"1\" nchunksperloop=\"1\"";
  EXPECT_EQ(fate(algo(usual, "")), "");
  EXPECT_NE(fate(algo("ngpus=\"1\" nchunksperloop=\"1000000000\"", "")), "");
  EXPECT_NE(fate(algo("ngpus=\"1000000000\" nchunksperloop=\"1\"", "")), "");
  EXPECT_NE(fate(algo("ngpus=\"99999999999999999999\" nchunksperloop=\"1\"", "")), "");
  EXPECT_NE(fate(algo(usual, " s_chunks=\"1000000000\"")), "");
  EXPECT_NE(fate(algo("ngpus=\"60000\" nchunksperloop=\"16000000\"", "")), "");
  std::string many = "<algo coll=\"allreduce\" ngpus=\"64\" nchunksperloop=\"16000000\">";
  for (int r = 0; r < 64; r++) many += fmt::format("<gpu id=\"{}\"/>", r);
  EXPECT_NE(fate(many + "</algo>").find("too many to prove"), std::string::npos);
}

TEST(BadScheduleFiles, WithStepsThatWaitInACircleAreRefused) {
  const auto lane = [](int id, int depid) {
    return fmt::format(
        "<tb id=\"{}\" send=\"-1\" recv=\"-1\" chan=\"0\"><step s=\"0\" type=\"cpy\" srcbuf=\"i\" "
        "srcoff=\"0\" dstbuf=\"o\" dstoff=\"0\" cnt=\"1\" depid=\"{}\" deps=\"0\" "
        "hasdep=\"1\"/></tb>",
        id, depid);
  };
  const std::string head =
      "<algo coll=\"broadcast\" ngpus=\"1\" nchunksperloop=\"1\" inplace=\"0\"><gpu id=\"0\">";
  EXPECT_NE(fate(head + lane(0, 1) + lane(1, 0) + "</gpu></algo>").find("at any FIFO depth"),
            std::string::npos);
  EXPECT_NE(fate(head + lane(0, 0) + "</gpu></algo>").find("at any FIFO depth"), std::string::npos);
}

TEST(BadScheduleFiles, OfManyLanesOnOneChunkAreRefusedInTime) {
  // Every lane copies the same chunk, so all pairs of lanes race.
  std::string text =
      "<algo coll=\"broadcast\" ngpus=\"1\" nchunksperloop=\"1\" inplace=\"0\"><gpu id=\"0\">";
  for (int l = 0; l < 3000; l++)
    text += fmt::format(
        "<tb id=\"{}\" send=\"-1\" recv=\"-1\" chan=\"0\"><step s=\"0\" type=\"cpy\" srcbuf=\"i\" "
        "srcoff=\"0\" dstbuf=\"o\" dstoff=\"0\" cnt=\"1\"/></tb>",
        l);
  EXPECT_NE(fate(text + "</gpu></algo>").find("nothing orders them"), std::string::npos);
}

TEST(BadScheduleFiles, OfOtherKindsAreTold) {
  EXPECT_EQ(fate(""), "file: the file is empty");
  EXPECT_EQ(fate("\n \n"), "file: the file is empty");
  EXPECT_EQ(fate("\n hello"), "file:2: neither MSCCL XML nor JSON");
  EXPECT_EQ(fate(std::string("\x7f"
                             "ELF\0\0",
                             6)),
            "file:1: neither MSCCL XML nor JSON");
  EXPECT_NE(fate(std::string("<\0a\0l\0g\0", 8)), "");
}

TEST(BadScheduleFiles, ThatCannotBeReadAreTold) {
  const auto error_of = [](const std::filesystem::path& path) -> std::string {
    try {
      load_schedule(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_of("/nonexistent/a.xml"), "/nonexistent/a.xml: there is no such file");
  EXPECT_EQ(error_of("/tmp"), "/tmp: is a folder, not a regular file");
  EXPECT_EQ(error_of("/dev/zero"), "/dev/zero: is a device, not a regular file");
  // A sparse file: larger than the reader accepts, though it takes no disk space.
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("weft-large-{}.xml", static_cast<const void*>(&error_of));
  std::ofstream(path).close();
  std::filesystem::resize_file(path, kMostScheduleBytes + 1);
  EXPECT_NE(error_of(path).find("has more than"), std::string::npos) << error_of(path);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace weft::test
