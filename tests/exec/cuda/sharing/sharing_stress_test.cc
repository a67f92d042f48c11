// Many ranks, many allocations: nothing is ever stale, and nothing is left behind.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <cstring>
#include <random>

#include "tests/exec/cuda/sharing/sharing_world.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

using cuda::Board;
using cuda::BoardEntry;
using cuda::kPrivate;

constexpr uint64_t kStressBase = uint64_t{9} << 36;

// Calls as kernels make them: all ranks say where their buffers are, and use them where they lie if
// every rank could say so. In between ranks free memory and allocate other memory at the same
// address, each on its own.
struct Calls {
  static constexpr int kRanks = 4, kBuffers = 6;
  SharingWorld world{kRanks};
  std::barrier<> meeting{kRanks};
  uint64_t places[kRanks] = {}, stamps[kRanks] = {};
  std::atomic<int> in_place = 0;

  static uint64_t buffer(uint64_t number) { return kStressBase + number * 16 * kMiB; }

  void run(int rank, int rounds) {
    std::mt19937_64 random(static_cast<uint64_t>(rank) + 1);
    FakeMemory& memory = world.memory(rank);
    const auto kind = [](uint64_t n) {
      return n % 2 == 0 ? FakeKind::kIpc : FakeKind::kDescriptor;
    };
    for (uint64_t n = 0; n < kBuffers; n++) memory.allocate(buffer(n), 8 * kMiB, kind(n));
    for (int round = 0; round < rounds; round++) {
      if (random() % 16 == 0) {
        const uint64_t n = random() % kBuffers;
        memory.free(buffer(n));
        memory.allocate(buffer(n), (4 + random() % 8) * kMiB, kind(n));
      }
      call(rank, random() % kBuffers, static_cast<uint64_t>(round) * kRanks + 1);
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  void call(int rank, uint64_t n, uint64_t round) {
    const auto me = static_cast<size_t>(rank);
    stamps[me] = round + me;
    world.memory(rank).write(buffer(n), stamps[me]);
    cuda::Registrations& own = *world.ranks[me];
    own.begin_launch(false);
    places[me] = own.place(reinterpret_cast<void*>(buffer(n)), 4 * kMiB);
    meeting.arrive_and_wait();
    const bool falls_back = std::find(places, places + kRanks, kPrivate) != places + kRanks;
    for (int peer = 0; peer < kRanks && !falls_back; peer++) {
      if (peer == rank) continue;
      const auto p = static_cast<size_t>(peer);
      const size_t number = world.number(peer, places[p]);
      const uint64_t offset = SharingWorld::offset(places[p]);
      EXPECT_EQ(world.memory(rank).start_reading(number, offset), stamps[p]) << "of rank " << peer;
      std::this_thread::yield();
      world.memory(rank).end_reading(number, offset);
    }
    if (!falls_back) in_place++;
    meeting.arrive_and_wait();
    own.end_launch(nullptr);
  }
};

TEST(SharedMemoryStress, OfRanksThatFreeAndAllocateIsNeverStale) {
  Calls calls;
  run_threads(
      Calls::kRanks, [&](int rank) { calls.run(rank, 1500); }, std::chrono::seconds(120));
  EXPECT_GT(calls.in_place, 100);
  EXPECT_EQ(calls.world.device.wrong, "");
  for (int rank = 0; rank < Calls::kRanks; rank++)
    for (uint64_t n = 0; n < Calls::kBuffers; n++) calls.world.memory(rank).free(Calls::buffer(n));
  EXPECT_TRUE(eventually([&] { return calls.world.device.alive() == 0; }));
  calls.world.ranks.clear();
  calls.world.drivers.clear();
  EXPECT_EQ(calls.world.device.wrong, "");
}

TEST(SharedMemoryStress, OfManyAllocationsIsUsedWhereItLies) {
  SharingWorld world(3);
  constexpr uint64_t kMany = 400;
  for (uint64_t n = 0; n < kMany; n++)
    world.memory(0).allocate(kStressBase + n * 4 * kMiB, 2 * kMiB,
                             n % 2 == 0 ? FakeKind::kIpc : FakeKind::kDescriptor);
  for (uint64_t n = 0; n < kMany; n++)
    ASSERT_TRUE(world.becomes_shared(0, kStressBase + n * 4 * kMiB, 2 * kMiB)) << n;
  for (uint64_t n = 0; n < kMany; n++)
    EXPECT_NE(world.place(0, kStressBase + n * 4 * kMiB, 2 * kMiB), kPrivate) << n;
  world.ranks.clear();
  world.drivers.clear();
  EXPECT_EQ(world.device.wrong, "");
}

// A child writes entries of which all words are alike, the parent reads them.
TEST(SharedBoard, OfAnotherProcessIsNeverReadHalfWritten) {
  constexpr size_t kBytes = 1 << 16;
  void* shared = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  Board board(static_cast<std::byte*>(shared), 2);
  constexpr uint64_t kLast = 200000;
  const pid_t child = fork();
  if (child == 0) {
    for (uint64_t i = 1; i <= kLast; i++) {
      BoardEntry entry;
      entry.base = entry.size = entry.region = entry.descriptor = i;
      for (size_t at = 0; at < sizeof entry.handle; at += 8) std::memcpy(entry.handle + at, &i, 8);
      board.publish(3, entry);
    }
    _exit(0);
  }
  uint64_t seen = 0;
  EXPECT_TRUE(eventually([&] {
    BoardEntry entry;
    if (!board.read(3, entry)) return false;
    uint64_t last = 0;
    std::memcpy(&last, entry.handle + 56, 8);
    EXPECT_EQ(entry.base, last);
    EXPECT_EQ(entry.size, entry.descriptor);
    EXPECT_EQ(entry.base, entry.region);
    EXPECT_EQ(entry.version, 2 * entry.base);
    EXPECT_GE(entry.base, seen);
    seen = entry.base;
    board.answer(3, 1, entry.version, seen % 2 == 0);
    return seen == kLast;
  }));
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(board.answer_of(3, 1, 2 * kLast), Board::Answer::kMapped);
  EXPECT_EQ(board.answer_of(3, 1, 2 * kLast - 2), Board::Answer::kNone);
  EXPECT_EQ(board.answer_of(3, 0, 2 * kLast), Board::Answer::kNone);
  munmap(shared, kBytes);
}

}  // namespace
}  // namespace weft::test
