// Schedules as files: ours in tests/data, and those that TACCL's and MSCCL's authors published.
// Each is proved, survives writing and reading, and gives the right result. Some are refused for
// the right reason. The published ones are skipped where they are missing.
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/schedule/msccl_xml.h"
#include "src/schedule/schedule_json.h"
#include "tests/collective/imported_runs.h"
#include "tests/support/environment.h"
#include "tests/support/require.h"

namespace weft::test {
namespace {

std::string folder_of_schedules() { return WEFT_SHARED_SCHEDULES; }

#define REQUIRE_PUBLISHED()                            \
  if (!std::filesystem::exists(folder_of_schedules())) \
  WEFT_SKIP("shared", "no published schedules at " + folder_of_schedules())

void expect_proved(const std::string& path) {
#ifdef WEFT_TEST_SANITIZED
  GTEST_SKIP() << "one thread: the fuzz targets look for bad memory accesses here, faster";
#endif
  const ScheduleFile file = load_schedule(path);
  const ProvedFile proved = prove(file, 2);
  EXPECT_EQ(proved.in_place != nullptr, file.in_place);
  EXPECT_EQ(proved.out_of_place != nullptr, file.out_of_place);
  EXPECT_EQ(read_schedule_json(write_schedule_json(file), "json"), file);
  for (const MscclDialect dialect : {MscclDialect::kAzure, MscclDialect::kLegacy})
    EXPECT_EQ(read_msccl_xml(write_msccl_xml(file, dialect), "xml"), file);
}

void expect_right_result(const std::string& path) {
  const ScheduleFile file = load_schedule(path);
  const Collective c = file.schedule.collective;
  // Sizes inside the file's range: its smallest, an odd size and a larger one.
  const auto blocks =
      static_cast<size_t>(std::max(c.input_blocks(0), c.output_blocks(0))) * sizeof(int32_t);
  const size_t least = (file.min_bytes + blocks - 1) / blocks;
  std::vector<ApiCall> calls;
  for (const bool in_place : {false, true}) {
    if (!(in_place ? file.in_place : file.out_of_place)) continue;
    for (const size_t more : {size_t{1}, size_t{101}, size_t{3000}}) {
      const size_t count = least + more;
      if (count * blocks > file.max_bytes) continue;
      calls.push_back({c, count, in_place});
    }
  }
  ASSERT_FALSE(calls.empty());
  const ScheduleFolder folder;
  const ScopedEnvironment environment{{"WEFT_SCHEDULES", path}};
  EXPECT_EQ(run_calls(c.nranks, calls), 0u);
  EXPECT_EQ(folder.log_lines("runs as " + path).size(), static_cast<size_t>(c.nranks));
}

void expect_refused(const std::string& path, const std::string& reason) {
  try {
    prove(load_schedule(path), 2);
    FAIL() << "proved";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
  }
}

void expect_nameless(const std::string& path, int line) {
  expect_refused(path, path + ":" + std::to_string(line) +
                           ": <algo>: has no attribute coll: say which collective it is (--coll)");
  const ProvedFile proved = prove(load_schedule(path, CollectiveKind::kAllGather), 2);
  EXPECT_NE(proved.in_place, nullptr);
}

std::string our_folder() { return WEFT_TEST_DATA "/schedules"; }

int files_in(const std::string& folder) {
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    files += entry.path().extension() == ".xml" ? 1 : 0;
  return files;
}

class OurSchedule : public testing::TestWithParam<const char*> {
 protected:
  static std::string path() { return our_folder() + "/" + GetParam() + ".xml"; }
};

TEST_P(OurSchedule, IsProvedAndComesBackFromBothForms) { expect_proved(path()); }

TEST_P(OurSchedule, RunsWithTheRightResult) { expect_right_result(path()); }

INSTANTIATE_TEST_SUITE_P(Schedule, OurSchedule,
                         testing::Values("allgather_copy", "allgather_direct", "allgather_relay",
                                         "allreduce_pairs", "allreduce_ring", "allreduce_tree",
                                         "alltoall_pairs", "alltoall_relay", "broadcast_chain",
                                         "reducescatter_ring"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(OurSchedules, AreAllTestedHere) {
  EXPECT_EQ(files_in(our_folder()), 10 + 2) << "10 right ones and 2 that must be refused";
}

TEST(OurSchedules, ThatRaceAreRefused) {
  expect_refused(our_folder() + "/allgather_racy.xml",
                 "rank 0 lane 0 step 1 and rank 0 lane 1 step 2 touch the same chunk (output chunk "
                 "1 of rank 0) and nothing orders them");
}

TEST(OurSchedules, ThatDoNotNameTheirCollectiveNeedToBeTold) {
  expect_nameless(our_folder() + "/allgather_no_coll.xml", 2);
}

class Published : public testing::TestWithParam<const char*> {
 protected:
  static std::string path() { return folder_of_schedules() + "/" + GetParam(); }
};

TEST_P(Published, IsProvedAndComesBackFromBothForms) {
  REQUIRE_PUBLISHED();
  expect_proved(path());
}

TEST_P(Published, RunsWithTheRightResult) {
  REQUIRE_PUBLISHED();
  expect_right_result(path());
}

INSTANTIATE_TEST_SUITE_P(
    Schedule, Published,
    testing::Values("msccl/a2a2ll.xml", "msccl/ag-1k-512k.xml", "msccl/ag_hier_4_Simple.xml",
                    "msccl/ap-1pass.xml", "msccl/ar_hier_12_Simple.xml", "msccl/ar_tree_12_LL.xml",
                    "taccl/allgather-dgx2x2-1KB.xml", "taccl/allgather-dgx2x2-32KB.xml",
                    "taccl/allgather-dgx2x2-large.xml", "taccl/allgather-ndv2x2-1KB.xml",
                    "taccl/allgather-ndv2x2-large.xml", "taccl/allreduce-ndv2x2.xml",
                    "taccl/alltoall-ndv2x2.xml"),
    [](const auto& tested) {
      std::string name = tested.param;
      for (char& c : name)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
      return name;
    });

TEST(PublishedSchedules, AreAllTestedHere) {
  REQUIRE_PUBLISHED();
  EXPECT_EQ(files_in(folder_of_schedules()), 13 + 2) << "13 right ones and 2 to be refused";
}

TEST(PublishedSchedules, ThatRaceAreRefused) {
  REQUIRE_PUBLISHED();
  expect_refused(folder_of_schedules() + "/taccl/alltoall-dgx1-racy.xml",
                 "rank 2 lane 72 step 2 and rank 2 lane 96 step 16 touch the same chunk (output "
                 "chunk 64 of rank 2) and nothing orders them");
}

TEST(PublishedSchedules, ThatDoNotNameTheirCollectiveNeedToBeTold) {
  REQUIRE_PUBLISHED();
  expect_nameless(folder_of_schedules() + "/taccl/allgather-dgx2x2-no-coll-attribute.xml", 1);
}

}  // namespace
}  // namespace weft::test
