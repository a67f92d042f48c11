// Random schedules in host mode: the executor gives the bits of the reference run. The GPU tests
// compare GPUs with the same reference.
#include <gtest/gtest.h>

#include "algorithms/generators/coded.h"
#include "src/base/error.h"
#include "tests/collective/schedule_cases.h"
#include "tests/simulator/random_schedules.h"
#include "tests/support/environment.h"
#include "tests/support/require.h"
#include "tests/support/sampling.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

// weftPlanOf() asks for float32, and some cases are of other types.
void expect_reference_bits(int nranks, const ScheduleCases& cases) {
  const ScopedEnvironment environment{{"WEFT_SCHEDULES", cases.folder()},
                                      {"WEFT_COMPRESS", "imported"}};
  std::vector<CaseMemory> memory;
  for (const ScheduleCase& c : cases.all()) memory.emplace_back(c);
  run_ranks_as_threads(nranks, [&](int rank, ncclComm_t comm) {
    for (size_t i = 0; i < cases.all().size(); i++) {
      const ScheduleCase& c = cases.all()[i];
      if (c.verified->schedule().codecs.empty()) EXPECT_EQ(other_plan(c, comm), "");
      std::vector<std::byte> mine = memory[i].before[static_cast<size_t>(rank)];
      WEFT_OK(call_of(c, rank, mine.data(), comm, nullptr));
      EXPECT_EQ(difference(c, rank, memory[i].after[static_cast<size_t>(rank)], mine), "");
    }
  });
}

const std::vector<std::string> kCodecTexts = {
    "int8:block=64", "int4", "fp8:block=16", "onebit:block=128", "topk:density=0.2:block=32",
    "widen"};

// Codes the messages of some FIFOs, each with one of several codecs.
void code_some(Schedule& schedule, Random& random) {
  for (int i = 0; i < 3; i++) schedule.codecs.push_back(parse_codec_spec(random.pick(kCodecTexts)));
  const uint64_t seed = random.next();
  const auto code = [&](int from, int to, Operand& operand) {
    if (operand.kind == Operand::Kind::kPeer)
      operand.codec = static_cast<uint8_t>(
          mix(seed, static_cast<uint64_t>(from * 64 + to), static_cast<uint64_t>(operand.channel)) %
          4);
  };
  for (size_t r = 0; r < schedule.ranks.size(); r++)
    for (Lane& lane : schedule.ranks[r].lanes)
      for (Step& step : lane.steps) {
        if (step.count == 0) continue;
        for (Operand& from : step.from) code(from.index, static_cast<int>(r), from);
        for (Operand& to : step.to) code(static_cast<int>(r), to.index, to);
      }
}

// Proofs refuse most of them where several ranks have the same output.
TEST(RandomImports, WithCodecsGiveThemToo) {
  Random random(test_seed());
  const std::vector<uint64_t> counts = {1, 100, 1001, 3000};
  const std::vector<ncclDataType_t> types = {ncclFloat32, ncclBfloat16};
  for (const int nranks : {2, 5, 8}) {
    ScheduleCases cases;
    for (int i = 0; i < test_samples(60); i++) {
      ScheduleFile file;
      file.schedule = random_schedule(nranks, random.next());
      code_some(file.schedule, random);
      try {
        cases.add("coded", file, random.pick(counts), random.pick(types));
      } catch (const Error&) {
        continue;
      }
    }
    const size_t random_ones = cases.all().size();
    for (int i = 0; i < test_samples(20); i++) {
      std::vector<int> hosts;
      for (int r = 0; r < nranks; r++) hosts.push_back(static_cast<int>(random.below(3)));
      const std::vector<CollectiveKind> kinds = {
          CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter};
      const Collective c{random.pick(kinds), nranks, 0};
      const CodecSpec spec = parse_codec_spec(random.pick(kCodecTexts));
      if (!why_not_coded(c, hosts, spec).empty()) continue;
      ScheduleFile file;
      file.schedule = make_coded(c, hosts, spec);
      cases.add("made", file, random.pick(counts), random.pick(types));
    }
    EXPECT_GT(random_ones, 3u);
    EXPECT_GT(cases.all().size(), random_ones);
    expect_reference_bits(nranks, cases);
  }
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
