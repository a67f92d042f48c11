// One-sided calls on GPUs: ranks as threads, as processes, and on fake hosts.
#include "tests/support/one_sided.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/gpu/support/gpu_processes.h"
#include "tests/gpu/support/graph.h"
#include "tests/gpu/support/process_rank.h"
#include "tests/gpu/support/team.h"
#include "tests/gpu/support/window_memory.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

struct WindowMember {
  int rank, nranks;
  ncclComm_t comm;
  cudaStream_t stream;
};

void finish(const WindowMember& me) {
  const std::string late = finish_within(me.stream, std::chrono::seconds(15));
  if (!late.empty()) throw std::runtime_error(late);
}

char value_of(int from, int to, int round, size_t i) {
  return static_cast<char>(from * 31 + to * 7 + round * 3 + static_cast<int>(i % 251));
}

void wait_for_all(const WindowMember& me) {
  std::vector<ncclWaitSignalDesc_t> all;
  for (int r = 0; r < me.nranks; r++) all.push_back({1, r, 0, 0});
  WEFT_OK(ncclWaitSignal(me.nranks, all.data(), me.comm, me.stream));
}

void barrier(const WindowMember& me) {
  WEFT_OK(ncclGroupStart());
  for (int r = 0; r < me.nranks; r++) WEFT_OK(ncclSignal(r, 0, 0, 0, me.comm, me.stream));
  WEFT_OK(ncclGroupEnd());
  wait_for_all(me);
}

void put_to_all(const WindowMember& me, const WindowMemory& from, const WindowMemory& to,
                size_t block) {
  WEFT_OK(ncclGroupStart());
  for (int r = 0; r < me.nranks; r++)
    WEFT_OK(ncclPutSignal(static_cast<char*>(from.data()) + static_cast<size_t>(r) * block, block,
                          ncclInt8, r, to.window(), static_cast<size_t>(me.rank) * block, 0, 0, 0,
                          me.comm, me.stream));
  WEFT_OK(ncclGroupEnd());
}

void fill(const WindowMember& me, const WindowMemory& from, size_t block, int round) {
  std::vector<char> mine(block * static_cast<size_t>(me.nranks));
  for (int r = 0; r < me.nranks; r++)
    for (size_t i = 0; i < block; i++)
      mine[static_cast<size_t>(r) * block + i] = value_of(me.rank, r, round, i);
  from.write(mine.data(), mine.size());
}

void check(const WindowMember& me, const WindowMemory& to, size_t block, int round) {
  std::vector<char> got(block * static_cast<size_t>(me.nranks));
  to.read(got.data(), got.size());
  size_t wrong = 0;
  for (int r = 0; r < me.nranks; r++)
    for (size_t i = 0; i < block; i++)
      wrong += got[static_cast<size_t>(r) * block + i] != value_of(r, me.rank, round, i) ? 1 : 0;
  EXPECT_EQ(wrong, 0u) << "rank " << me.rank << ", round " << round << ", blocks of " << block;
}

void all_to_all(const WindowMember& me, size_t block) {
  const size_t bytes = block * static_cast<size_t>(me.nranks);
  WindowMemory from(me.comm, bytes, me.stream), to(me.comm, bytes, me.stream);
  for (int round = 0; round < 4; round++) {
    fill(me, from, block, round);
    barrier(me);
    put_to_all(me, from, to, block);
    wait_for_all(me);
    finish(me);
    check(me, to, block, round);
  }
  barrier(me);
  finish(me);
}

// Counters grow in the graph, so it can be replayed.
void replay(const WindowMember& me) {
  constexpr size_t kBlock = 5000;
  const size_t bytes = kBlock * static_cast<size_t>(me.nranks);
  WindowMemory from(me.comm, bytes, me.stream), to(me.comm, bytes, me.stream);
  barrier(me);
  finish(me);
  const Graph graph(me.stream, [&] {
    barrier(me);
    put_to_all(me, from, to, kBlock);
    wait_for_all(me);
  });
  for (int round = 0; round < 6; round++) {
    fill(me, from, kBlock, round);
    graph.replay(me.stream);
    finish(me);
    check(me, to, kBlock, round);
    barrier(me);  // everybody has looked
    finish(me);
  }
}

// Two ranks take turns.
void ping_pong(const WindowMember& me) {
  WindowMemory word(me.comm, 4096, me.stream);
  const int peer = 1 - me.rank;
  ncclWaitSignalDesc_t desc{1, peer, 0, 0};
  for (int round = 0; round < 100 && me.rank < 2; round++) {
    if (me.rank == 0) {
      WEFT_OK(ncclWaitSignal(1, &desc, me.comm, me.stream));
    }
    WEFT_OK(ncclSignal(peer, 0, 0, 0, me.comm, me.stream));
    if (me.rank == 1) {
      WEFT_OK(ncclWaitSignal(1, &desc, me.comm, me.stream));
    }
  }
  barrier(me);
  finish(me);
}

// Signals of several streams at once are all counted, more streams than the library has events for.
void many_streams(const WindowMember& me) {
  constexpr int kStreams = 20, kRounds = 50;
  WindowMemory word(me.comm, 4096, me.stream);
  const int peer = (me.rank + 1) % me.nranks, other = (me.rank + me.nranks - 1) % me.nranks;
  std::vector<cudaStream_t> streams(kStreams);
  for (cudaStream_t& stream : streams)
    WEFT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int round = 0; round < kRounds; round++)
    for (cudaStream_t stream : streams) WEFT_OK(ncclSignal(peer, 0, 0, 0, me.comm, stream));
  ncclWaitSignalDesc_t half{kStreams * kRounds / 2, other, 0, 0};
  WEFT_OK(ncclWaitSignal(1, &half, me.comm, streams[0]));
  WEFT_OK(ncclWaitSignal(1, &half, me.comm, streams[1]));
  for (cudaStream_t stream : streams) {
    finish({me.rank, me.nranks, me.comm, stream});
    WEFT_CUDA(cudaStreamDestroy(stream));
  }
  barrier(me);  // no signal is left over
  finish(me);
}

WEFT_SCENARIO(one_sided_on_gpus) {
  ProcessRank process(context);
  const WindowMember me{process.rank(), process.nranks(), process.comm(), process.stream()};
  for (const size_t block : {size_t{1}, size_t{4000}, size_t{1500000}}) {
    process.note("blocks of " + std::to_string(block));
    all_to_all(me, block);
  }
  process.note("taking turns");
  ping_pong(me);
  process.note("many streams");
  many_streams(me);
  process.note("replaying a graph");
  replay(me);
  // Collectives go on.
  WindowMemory memory(me.comm, 4096, me.stream);
  WEFT_OK(
      ncclAllReduce(memory.data(), memory.data(), 100, ncclFloat32, ncclSum, me.comm, me.stream));
  finish(me);
}

class OneSidedProcesses : public GpuProcesses {
 protected:
  static void play_on_hosts(int n, int of) {
    ProcessOptions options;
    options.limit = std::chrono::seconds(60);
    options.environment = [=](int rank) { return separate_hosts(rank / of); };
    run_ranks_as_processes("one_sided_on_gpus", n, options);
  }
};

TEST_F(OneSidedProcesses, WriteIntoEachOthersWindows) {
  for (const int n : {2, 4, 7}) play("one_sided_on_gpus", n);
}
TEST_F(OneSidedProcesses, OnHostsOfTheirOwnWriteIntoEachOthersWindows) { play_on_hosts(2, 1); }
TEST_F(OneSidedProcesses, OnTwoHostsWriteIntoEachOthersWindows) { play_on_hosts(4, 2); }

// A wait ends when the peer has left, and at the timeout.
WEFT_SCENARIO(signal_never_comes) {
  ProcessRank me(context);
  {
    WindowMemory word(me.comm(), 4096, me.stream());
    WindowMember all{me.rank(), me.nranks(), me.comm(), me.stream()};
    barrier(all);
    finish(all);
  }
  if (me.rank() == 1) return;
  ncclWaitSignalDesc_t desc{1, 1, 0, 0};
  WEFT_OK(ncclWaitSignal(1, &desc, me.comm(), me.stream()));
  const std::string late = finish_within(me.stream(), std::chrono::seconds(10));
  EXPECT_EQ(late, "");
  ncclResult_t state = ncclSuccess;
  WEFT_OK(ncclCommGetAsyncError(me.comm(), &state));
  EXPECT_NE(state, ncclSuccess);
  EXPECT_NE(std::string(ncclGetLastError(me.comm())).find("rank 1"), std::string::npos)
      << ncclGetLastError(me.comm());
  WEFT_OK(ncclCommAbort(me.take()));
}

TEST_F(OneSidedProcesses, EndAWaitWhenThePeerLeaves) { play("signal_never_comes", 2); }

class OneSidedThreads : public GpuTest {};

TEST_F(OneSidedThreads, WriteIntoEachOthersWindows) {
  run_team(3, [](Rank& rank) {
    const WindowMember me{rank.rank, rank.nranks, rank.comm(), rank.stream()};
    all_to_all(me, 1000);
    all_to_all(me, 1 << 20);
    ping_pong(me);
  });
}

}  // namespace
}  // namespace weft::test
