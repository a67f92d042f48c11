// Many mixed operations on several streams and in graphs, without errors or leaks.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/gpu_processes.h"
#include "tests/gpu/support/graph.h"
#include "tests/gpu/support/process_rank.h"
#include "tests/gpu/support/team.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

// WEFT_TEST_OPERATIONS, or 10,000.
int operations() {
  const char* given = std::getenv("WEFT_TEST_OPERATIONS");
  return given != nullptr ? std::atoi(given) : 10000;
}

size_t resident_bytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

size_t device_bytes() {
  size_t free = 0, total = 0;
  WEFT_CUDA(cudaMemGetInfo(&free, &total));
  return total - free;
}

struct Usage {
  size_t host = resident_bytes(), device = device_bytes();
};

// Memory that the allocator holds free is not a leak.
Usage usage() {
  malloc_trim(0);
  return {};
}

void expect_flat(const Usage& early, const Usage& late) {
  std::printf("host memory %zu -> %zu KiB, device memory %zu -> %zu KiB\n", early.host >> 10,
              late.host >> 10, early.device >> 10, late.device >> 10);
  EXPECT_LT(late.host, early.host + (size_t{8} << 20));
  EXPECT_LT(late.device, early.device + (size_t{4} << 20));
}

constexpr int kSoakRanks = 4;
constexpr size_t kStreamsEach = 3, kSoakBytes = size_t{256} << 20;

// A rank, either a thread or a process.
struct Member {
  int rank;
  ncclComm_t comm;
  Arena* arena;
  std::vector<cudaStream_t> streams;
  std::function<void()> meet;
};

// The work of one rank. Decisions come from a seed that all ranks share.
class Soak {
 public:
  Soak(const Member& me, uint64_t seed) : me_(me), random_(seed) {
    WEFT_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    for (size_t i = 0; i < 36; ++i) {
      Case c = make_case(random_.pick(all_operations()), 0, random_.pick(all_types()).id);
      c.reduction = random_.pick(all_reductions());
      const size_t most = random_.below(4) == 0 ? 100000 : 3000;
      c.count = random_.below(most);
      c.root = static_cast<int>(random_.below(kSoakRanks));
      c.in_place = can_be_in_place(c.operation) && random_.below(2) == 0;
      c.salt = random_.next();
      runs_.push_back(std::make_unique<DeviceCase>(c, me_.rank, kSoakRanks, me_.comm, *me_.arena,
                                                   me_.streams[0]));
    }
  }

  ~Soak() { cudaEventDestroy(event_); }
  Soak(const Soak&) = delete;
  Soak& operator=(const Soak&) = delete;

  // A case stays on one stream, so that one call at a time uses its buffers.
  cudaStream_t stream_of(size_t run) const { return me_.streams[run % me_.streams.size()]; }

  void capture() {
    me_.meet();  // no kernel may wait while graphs are made
    graphs_.clear();
    for (size_t g = 0; g < 4; ++g) {
      std::vector<size_t> members;
      for (size_t k = 0; k < 3; ++k) members.push_back(random_.below(12) * me_.streams.size());
      graphs_.push_back(std::make_unique<Graph>(me_.streams[0], [&] {
        for (const size_t run : members) launch(run);
      }));
    }
    me_.meet();
  }

  // Runs one to four operations. Returns the number.
  int step() {
    if (random_.below(8) == 0) {
      // The communicator does not see a replay. Events order it with the calls.
      for (size_t s = 1; s < me_.streams.size(); ++s) hand_over(me_.streams[s], me_.streams[0]);
      graphs_[random_.below(graphs_.size())]->replay(me_.streams[0]);
      for (size_t s = 1; s < me_.streams.size(); ++s) hand_over(me_.streams[0], me_.streams[s]);
      return 3;
    }
    const size_t calls = random_.below(6) == 0 ? 4 : 1;
    if (calls > 1) {
      WEFT_OK(ncclGroupStart());
    }
    for (size_t i = 0; i < calls; ++i) {
      const size_t run = random_.below(runs_.size());
      if (calls == 1) runs_[run]->refill(stream_of(run));
      WEFT_OK(runs_[run]->launch(stream_of(run)));
    }
    if (calls > 1) {
      WEFT_OK(ncclGroupEnd());
    }
    return static_cast<int>(calls);
  }

  // Runs everything once more from fresh data, and checks it.
  void check() {
    for (size_t run = 0; run < runs_.size(); ++run) {
      launch(run);
      expect_right(runs_[run]->check(stream_of(run)));
    }
  }

 private:
  void hand_over(cudaStream_t from, cudaStream_t to) {
    WEFT_CUDA(cudaEventRecord(event_, from));
    WEFT_CUDA(cudaStreamWaitEvent(to, event_, 0));
  }
  void launch(size_t run) {
    runs_[run]->refill(stream_of(run));
    WEFT_OK(runs_[run]->launch(stream_of(run)));
  }
  const Member& me_;
  Random random_;
  cudaEvent_t event_ = nullptr;
  std::vector<std::unique_ptr<DeviceCase>> runs_;
  std::vector<std::unique_ptr<Graph>> graphs_;
};

// Memory use early and late in the run, measured while all ranks are idle.
struct Measured {
  Usage early, late;
};

Measured run_soak(const Member& me, uint64_t seed, int total) {
  Measured measured;
  const auto measure = [&](Usage& into) {
    me.meet();
    into = usage();
    me.meet();
  };
  Soak soak(me, seed);
  int done = 0, checked = 0, captured = 0;
  bool is_early = true;
  soak.capture();
  while (done < total) {
    done += soak.step();
    if (done - checked >= 300) {
      checked = done;
      soak.check();
      done += 36;
    }
    if (done - captured >= 1500) {
      captured = done;
      soak.check();
      soak.capture();
    }
    if (is_early && done > total * 3 / 10) {
      is_early = false;
      soak.check();
      measure(measured.early);
    }
  }
  soak.check();
  measure(measured.late);
  return measured;
}

Measured run_soak_of_threads(uint64_t seed, int total) {
  Measured first;
  run_team(kSoakRanks,
           [&](Rank& me) {
             const Member member{me.rank, me.comm(), me.arena, me.streams, [&] { me.meet(); }};
             const Measured measured = run_soak(member, seed, total);
             if (me.rank == 0) first = measured;
           },
           {.streams = kStreamsEach,
            .used_streams = true,
            .arena_bytes = kSoakBytes,
            .limit = std::chrono::seconds(95)});
  return first;
}

class LongRun : public GpuTest {
 protected:
  LongRun() : GpuTest(std::chrono::seconds(100)) {}
};

TEST_F(LongRun, OfMixedOperationsHasNoErrorAndNoLeak) {
  const auto start = std::chrono::steady_clock::now();
  const Measured first = run_soak_of_threads(test_seed(), operations());
  expect_flat(first.early, first.late);
  std::printf("%d operations per rank in %.1f s\n", operations(),
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

// The argument is the seed.
WEFT_SCENARIO(start_of_soak) { run_soak_of_threads(std::stoull(context.argument), 300); }

// First-time effects fail in few of many processes, so this starts several.
TEST(StartOfALongRun, OfMixedOperationsDoesNotHang) {
  ProcessOptions options;
  options.limit = std::chrono::seconds(20);
  for (uint64_t i = 0; i < 20; ++i) {
    options.argument = std::to_string(mix(test_seed(), i));
    run_ranks_as_processes("start_of_soak", 1, options);
    ASSERT_FALSE(testing::Test::HasFailure()) << "start " << i;
  }
}

// The argument: the origin of memory, and the seed.
WEFT_SCENARIO(soak) {
  ProcessRank me(context);
  const size_t comma = context.argument.find(',');
  const Origin origin =
      context.argument.substr(0, comma) == "registered" ? Origin::kRegistered : Origin::kCudaMalloc;
  Arena arena(kSoakBytes, origin, me.comm()), meeting(4096, Origin::kCudaMalloc);
  Member member{me.rank(), me.comm(), &arena, {}, {}};
  for (size_t s = 0; s < kStreamsEach; ++s) member.streams.push_back(stream_number(s));
  member.meet = [&] {
    me.note("rank " + std::to_string(me.rank()) + " in the soak");
    me.meet(meeting);
  };
  const Measured measured =
      run_soak(member, std::stoull(context.argument.substr(comma + 1)), operations());
  // All processes share the GPU's memory, so one of them checks it.
  if (me.rank() == 0) expect_flat(measured.early, measured.late);
  member.meet();
}

class ProcessLongRun : public GpuProcesses {
 protected:
  static void soak(const std::string& memory) {
    play("soak", kSoakRanks, memory + "," + std::to_string(test_seed()), {},
         std::chrono::seconds(50));
  }
};

TEST_F(ProcessLongRun, OfMixedOperationsInPlainMemoryHasNoErrorAndNoLeak) { soak("plain"); }
TEST_F(ProcessLongRun, OfMixedOperationsInRegisteredMemoryHasNoErrorAndNoLeak) {
  soak("registered");
}

TEST_F(LongRun, OfCommunicatorsThatComeAndGoHasNoLeak) {
  const auto once = [] {
    run_team(4, [](Rank& me) { me.run(make_case(Operation::kAllReduce, 50000)); },
             {.arena_bytes = size_t{4} << 20});
  };
  for (int i = 0; i < 10; ++i) once();
  const Usage early = usage();
  for (int i = 0; i < 30; ++i) once();
  expect_flat(early, usage());
}

}  // namespace
}  // namespace weft::test
