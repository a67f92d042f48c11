// Random schedules in host mode: the executor gives the bits of the reference run. The GPU tests
// compare GPUs with the same reference.
#include <gtest/gtest.h>

#include "tests/collective/schedule_cases.h"
#include "tests/simulator/random_schedules.h"
#include "tests/support/environment.h"
#include "tests/support/require.h"
#include "tests/support/sampling.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

void expect_reference_bits(int nranks, const ScheduleCases& cases) {
  const ScopedEnvironment environment{{"WEFT_SCHEDULES", cases.folder()}};
  std::vector<CaseMemory> memory;
  for (const ScheduleCase& c : cases.all()) memory.emplace_back(c);
  run_ranks_as_threads(nranks, [&](int rank, ncclComm_t comm) {
    for (size_t i = 0; i < cases.all().size(); i++) {
      const ScheduleCase& c = cases.all()[i];
      EXPECT_EQ(other_plan(c, comm), "");
      std::vector<std::byte> mine = memory[i].before[static_cast<size_t>(rank)];
      WEFT_OK(call_of(c, rank, mine.data(), comm, nullptr));
      EXPECT_EQ(difference(c, rank, memory[i].after[static_cast<size_t>(rank)], mine), "");
    }
  });
}

TEST(RandomImports, GiveTheBitsOfTheReference) {
  Random random(test_seed());
  for (const int nranks : {2, 5, 8}) {
    ScheduleCases cases;
    for (int i = 0; i < test_samples(40); i++) {
      ScheduleFile file;
      file.schedule = random_schedule(nranks, random.next());
      const std::vector<uint64_t> counts = {1, 101, 3000};
      cases.add("random", file, random.pick(counts), i % 2 == 0 ? ncclFloat32 : ncclBfloat16);
    }
    expect_reference_bits(nranks, cases);
  }
}

TEST(RandomImports, AndPublishedOnesToo) {
  const std::string folder = WEFT_SHARED_SCHEDULES;
  if (!std::filesystem::exists(folder)) WEFT_SKIP("shared", "no published schedules at " + folder);
  std::set<std::string> files;
  for (const auto& [nranks, cases] : published_cases(folder, {6 << 10})) {
    for (const ScheduleCase& c : cases.all()) files.insert(c.path);
    expect_reference_bits(nranks, cases);
  }
  EXPECT_EQ(files.size(), kPublishedSchedules);
}

TEST(RandomImports, AndThoseOfGeneratorsToo) {
  for (const int nranks : {3, 8}) {
    ScheduleCases cases;
    for (const char* generator : {"ring", "tree", "recursive", "direct", "pairwise"})
      cases.add_all_of(generator, nranks, 1000, ncclFloat32);
    expect_reference_bits(nranks, cases);
  }
}

}  // namespace
}  // namespace weft::test
