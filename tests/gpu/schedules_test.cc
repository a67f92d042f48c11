// Imported schedules on a GPU, with ranks as threads that share it: random ones, those of the
// generators and published ones. Results have the bits of the reference, which are those of host
// mode (tests/collective/random_imports_test.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "algorithms/generators/coded.h"
#include "src/exec/datatype.h"
#include "tests/collective/schedule_cases.h"
#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/pinned.h"
#include "tests/gpu/support/team.h"
#include "tests/schedule/reference_run.h"
#include "tests/simulator/random_schedules.h"
#include "tests/support/environment.h"
#include "tests/support/require.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

constexpr auto kLimit = std::chrono::seconds(50);
constexpr int kMostRanks = 8;

class Schedules : public GpuTest {
 protected:
  Schedules() : GpuTest(kLimit) {}
};

void run_case(Rank& me, const ScheduleCase& c, const CaseMemory& memory) {
  const auto& before = memory.before[static_cast<size_t>(me.rank)];
  me.arena->reset();
  auto* device = reinterpret_cast<std::byte*>(me.arena->take(before.size()));
  upload(device, before.data(), before.size(), me.stream());
  me.meet();  // see sampled_test.cc
  WEFT_OK(call_of(c, me.rank, device, me.comm(), me.stream()));
  std::vector<std::byte> got(before.size());
  download(got.data(), device, got.size(), me.stream());
  EXPECT_EQ(difference(c, me.rank, memory.after[static_cast<size_t>(me.rank)], got), "");
}

// One communicator runs all cases. Rank 0 prepares each, while no kernel runs.
void run_cases(int nranks, const ScheduleCases& cases) {
  const ScopedEnvironment environment{{"WEFT_SCHEDULES", cases.folder()},
                                      {"WEFT_COMPRESS", "imported"}};
  std::unique_ptr<CaseMemory> memory;
  run_team(nranks,
           [&](Rank& me) {
             for (const ScheduleCase& c : cases.all()) {
               if (me.rank == 0) {
                 // weftPlanOf() asks for float32, and some cases are of other types.
                 if (c.verified->schedule().codecs.empty()) {
                   EXPECT_EQ(other_plan(c, me.comm()), "");
                 }
                 memory = std::make_unique<CaseMemory>(c);
               }
               me.meet();
               run_case(me, c, *memory);
               me.meet();
             }
           },
           {.limit = kLimit});
}

// One element, an odd number, a few KiB, 1 MiB: of the whole array, in turn.
uint64_t count_of(int number, const Collective& c, ncclDataType_t type) {
  const uint64_t unit = element_size(type) * static_cast<uint64_t>(c.array_blocks());
  switch (number % 4) {
    case 0:
      return 1;
    case 1:
      return 101;
    case 2:
      return std::max<uint64_t>(1, (6 << 10) / unit);
    default:
      return std::max<uint64_t>(1, (1 << 20) / unit);
  }
}

ncclDataType_t type_of_case(int number) { return number / 4 % 2 == 0 ? ncclFloat32 : ncclBfloat16; }

void run_random(int nranks, int schedules) {
  ScheduleCases cases;
  Random random(mix(test_seed(), static_cast<uint64_t>(nranks)));
  for (int i = 0; i < schedules; i++) {
    ScheduleFile file;
    file.schedule = random_schedule(nranks, random.next());
    const ncclDataType_t type = type_of_case(i);
    cases.add("random", file, count_of(i, file.schedule.collective, type), type);
  }
  run_cases(nranks, cases);
}

void run_generators(int nranks) {
  ScheduleCases cases;
  int number = 0;
  for (const char* generator : {"ring", "tree", "recursive", "direct", "pairwise"})
    for (const int size : {1, 3})
      cases.add_all_of(generator, nranks,
                       count_of(size, {CollectiveKind::kAllGather, nranks, 0}, ncclFloat32),
                       number++ % 2 == 0 ? ncclFloat32 : ncclBfloat16);
  run_cases(nranks, cases);
}

void run_published() {
  const std::string folder = WEFT_SHARED_SCHEDULES;
  if (!std::filesystem::exists(folder)) WEFT_SKIP("shared", "no published schedules at " + folder);
  for (const auto& [nranks, cases] : published_cases(folder, {400, 6 << 10, 1 << 20}))
    run_cases(nranks, cases);
}

TEST_F(Schedules, ThatAreRandomGiveTheBitsOfTheReference) {
  const int each = (test_samples(200) + kMostRanks - 2) / (kMostRanks - 1);
  for (int nranks = 2; nranks <= kMostRanks; nranks++) run_random(nranks, each);
}

// For sanitizer.sh, under which kernels are 100 times slower: packets, slots and straight messages.
TEST_F(Schedules, AreSampled) { run_random(2, 8); }

TEST_F(Schedules, OfGeneratorsGiveTheBitsOfTheReference) {
  for (const int nranks : {2, 3, 5, 8}) run_generators(nranks);
}

// Ranks share a GPU, whatever hosts the schedules were made for.
void run_coded(const std::vector<int>& hosts) {
  ScheduleCases cases;
  const auto nranks = static_cast<int>(hosts.size());
  int number = 0;
  for (const char* codec :
       {"int8", "int4:block=64", "fp8", "onebit:block=128", "widen", "topk:block=128:density=0.1"})
    for (const CollectiveKind kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
      const Collective c{kind, nranks, 0};
      const CodecSpec spec = parse_codec_spec(codec);
      if (!why_not_coded(c, hosts, spec).empty()) continue;
      ScheduleFile file;
      file.schedule = make_coded(c, hosts, spec);
      const ncclDataType_t type = number % 2 == 0 ? ncclFloat32 : ncclBfloat16;
      cases.add("coded", file, count_of(1 + number++ % 3, c, type), type);
    }
  run_cases(nranks, cases);
}

TEST_F(Schedules, WithCodecsGiveTheBitsOfTheReference) {
  run_coded({0, 1});
  run_coded({0, 0, 1, 1});
  run_coded({0, 1, 2, 3});
  run_coded({0, 0, 0, 1, 1, 2, 2, 2});
}

TEST_F(Schedules, WithCodecsRunWithOneThreadBlockPerRank) {
  const ScopedEnvironment environment{{"NCCL_MAX_CTAS", "1"}, {"WEFT_SYSTEM_SCOPE", "1"}};
  run_coded({0, 1, 1, 2});
}

TEST_F(Schedules, ThatArePublishedGiveTheBitsOfTheReference) { run_published(); }

TEST_F(Schedules, RunWithOneThreadBlockPerRank) {
  const ScopedEnvironment environment{{"NCCL_MAX_CTAS", "1"}};
  for (const int nranks : {3, 8}) {
    run_random(nranks, 16);
    run_generators(nranks);
  }
}

TEST_F(Schedules, ThatArePublishedRunWithOneThreadBlockPerRank) {
  const ScopedEnvironment environment{{"NCCL_MAX_CTAS", "1"}};
  run_published();
}

TEST_F(Schedules, RunWithMemoryOrderOfSeveralGpus) {
  const ScopedEnvironment environment{{"WEFT_SYSTEM_SCOPE", "1"}};
  for (const int nranks : {2, 8}) {
    run_random(nranks, 16);
    run_generators(nranks);
  }
}

TEST_F(Schedules, RunWithAllMessagesThroughSlots) {
  const ScopedEnvironment environment{{"WEFT_STRAIGHT", "0"}};
  for (const int nranks : {2, 8}) {
    run_random(nranks, 16);
    run_generators(nranks);
  }
}

TEST_F(Schedules, RunThroughSlotsWithMemoryOrderOfSeveralGpusInOneBlock) {
  const ScopedEnvironment environment{
      {"WEFT_STRAIGHT", "0"}, {"WEFT_SYSTEM_SCOPE", "1"}, {"NCCL_MAX_CTAS", "1"}};
  run_random(5, 16);
}

// The plan is uploaded by the call before the capture.
TEST_F(Schedules, RunInGraphs) {
  ScheduleCases cases;
  Random random(test_seed());
  for (int i = 0; i < 8; i++) {
    ScheduleFile file;
    file.schedule = random_schedule(4, random.next());
    cases.add("random", file, count_of(i, file.schedule.collective, ncclFloat32), ncclFloat32);
  }
  const ScopedEnvironment environment{{"WEFT_SCHEDULES", cases.folder()},
                                      {"WEFT_COMPRESS", "imported"}};
  std::unique_ptr<CaseMemory> memory;
  run_team(4, [&](Rank& me) {
    for (const ScheduleCase& c : cases.all()) {
      if (me.rank == 0) memory = std::make_unique<CaseMemory>(c);
      me.meet();
      run_case(me, c, *memory);
      const auto& before = memory->before[static_cast<size_t>(me.rank)];
      auto* device = reinterpret_cast<std::byte*>(me.arena->data());
      me.meet();
      const Graph graph(me.stream(),
                        [&] { WEFT_OK(call_of(c, me.rank, device, me.comm(), me.stream())); });
      me.meet();
      for (int replay = 0; replay < 3; replay++) {
        upload(device, before.data(), before.size(), me.stream());
        graph.replay(me.stream());
        std::vector<std::byte> got(before.size());
        download(got.data(), device, got.size(), me.stream());
        EXPECT_EQ(difference(c, me.rank, memory->after[static_cast<size_t>(me.rank)], got), "");
      }
      me.meet();
    }
  });
}

// What each of several equal calls leaves, if losses come with the next one.
std::vector<CaseMemory> with_feedback(const ScheduleCase& c, int calls) {
  std::vector<CaseMemory> all;
  std::vector<std::vector<float>> losses;
  for (int r = 0; r < c.collective().nranks; r++) {
    const BufferLayout at = layout_of(c.collective(), r, c.count, c.verified->in_place());
    losses.emplace_back(at.inputs + at.outputs);
  }
  weft::Reduction reduction;
  reduction.type = c.type;
  for (int call = 0; call < calls; call++) {
    CaseMemory& memory = all.emplace_back(c);
    memory.after = memory.before;
    run_reference(*c.verified, reduction, c.count, memory.after, &losses);
  }
  return all;
}

// Two calls, then replays of a third. Losses belong to addresses, so every case has its own.
void run_with_feedback(Rank& me, const ScheduleCase& c, const std::vector<CaseMemory>& expected) {
  const auto& before = expected[0].before[static_cast<size_t>(me.rank)];
  auto* device = reinterpret_cast<std::byte*>(me.arena->take(before.size()));
  const auto call = [&] { WEFT_OK(call_of(c, me.rank, device, me.comm(), me.stream())); };
  std::unique_ptr<Graph> graph;
  for (size_t k = 0; k < expected.size(); k++) {
    upload(device, before.data(), before.size(), me.stream());
    me.meet();
    if (k == 2) graph = std::make_unique<Graph>(me.stream(), call);
    me.meet();
    if (graph != nullptr)
      graph->replay(me.stream());
    else
      call();
    std::vector<std::byte> got(before.size());
    download(got.data(), device, got.size(), me.stream());
    EXPECT_EQ(difference(c, me.rank, expected[k].after[static_cast<size_t>(me.rank)], got), "")
        << c.text() << ", call " << k;
    me.meet();
  }
}

TEST_F(Schedules, WithFeedbackKeepTheLossesOfTheReference) {
  const std::vector<int> hosts = {0, 0, 1, 1};
  for (const char* codec : {"int4:block=64", "onebit:block=64", "topk:block=64:density=0.1"}) {
    ScheduleCases cases;
    ScheduleFile file;
    file.schedule = make_coded({CollectiveKind::kAllReduce, 4, 0}, hosts, parse_codec_spec(codec));
    cases.add("feedback", file, 100'001, ncclFloat32);
    cases.add("feedback", file, 30'000, ncclBfloat16);
    const ScopedEnvironment environment{
        {"WEFT_SCHEDULES", cases.folder()},
        {"WEFT_COMPRESS", std::string("all_reduce=") + codec + ":feedback"}};
    std::vector<CaseMemory> expected;
    run_team(4, [&](Rank& me) {
      me.arena->reset();
      for (const ScheduleCase& c : cases.all()) {
        if (me.rank == 0) expected = with_feedback(c, 4);
        me.meet();
        run_with_feedback(me, c, expected);
        me.meet();
      }
    });
  }
}

}  // namespace
}  // namespace weft::test
