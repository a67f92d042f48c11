// Memory that processes share, with a fake device: what a call gets, and when.
#include <gtest/gtest.h>

#include "tests/exec/cuda/sharing/sharing_world.h"

namespace weft::test {
namespace {

using cuda::kPrivate;
using cuda::SharingOptions;
using std::chrono::milliseconds;

constexpr uint64_t kBase = uint64_t{7} << 36, kSize = 4 * kMiB;

TEST(PlainBuffer, IsPrivateAtFirstAndUsedWhereItLiesLater) {
  SharingWorld world(3);
  world.memory(0).allocate(kBase, kSize, FakeKind::kIpc);
  world.memory(0).write(kBase, 77);
  EXPECT_EQ(world.place(0, kBase, kSize), kPrivate);
  ASSERT_TRUE(world.becomes_shared(0, kBase + kMiB, kMiB));
  const uint64_t place = world.place(0, kBase + kMiB, kMiB);
  EXPECT_EQ(SharingWorld::offset(place), kMiB);
  for (const int reader : {1, 2}) EXPECT_EQ(world.read(reader, 0, place), 77u);
  EXPECT_EQ(world.place(0, kBase + kSize - kMiB, 2 * kMiB), kPrivate) << "it ends before";
  EXPECT_EQ(world.device.wrong, "");
}

TEST(PlainBuffer, IsNotSharedForSmallCalls) {
  SharingOptions options = SharingWorld::usual();
  options.least_used = kMiB;
  SharingWorld world(2, options);
  world.memory(0).allocate(kBase, kSize, FakeKind::kIpc);
  for (int call = 0; call < 20; call++) {
    EXPECT_EQ(world.place(0, kBase, kMiB - 1), kPrivate);
    std::this_thread::sleep_for(milliseconds(1));
  }
  // A large call shares it, then small ones use it too.
  ASSERT_TRUE(world.becomes_shared(0, kBase, kMiB));
  EXPECT_NE(world.place(0, kBase + kMiB, 8), kPrivate);
}

TEST(RegisteredMemory, IsSharedForSmallCallsToo) {
  SharingOptions options = SharingWorld::usual();
  options.least_used = kMiB;
  SharingWorld world(2, options);
  world.memory(0).allocate(kBase, kSize, FakeKind::kIpc);
  world.ranks[0]->add(reinterpret_cast<const void*>(kBase), kSize);
  EXPECT_TRUE(world.becomes_shared(0, kBase, 8));
}

// NICs are asked like peers. A rank that is alone on its host has no others.
TEST(PlainBuffer, IsReachedByNicsWhenTheyHaveIt) {
  for (const int ranks : {1, 2}) {
    SharingWorld world(ranks);
    auto nics = std::make_shared<NicBuffers>();
    const size_t stream = nics->join();
    world.ranks[0]->reach_nics(nics);
    const auto place = [&](uint64_t at, uint64_t size, bool captured = false) {
      return world.place(0, at, size, cuda::OwnMemory::kNics, captured);
    };
    // A stream that takes what there is, but no buffer of 8 MiB.
    const auto look = [&] {
      for (size_t slot = 0; slot < NicBuffers::kSlots; slot++) {
        const uint64_t generation = nics->generation(slot);
        if (generation == 0) continue;
        nics->answer(slot, stream, generation, nics->buffer(slot).bytes < 8 * kMiB);
      }
    };
    world.memory(0).allocate(kBase, kSize, FakeKind::kIpc);
    EXPECT_EQ(place(kBase, kSize), kPrivate) << "it is new";
    EXPECT_EQ(place(kBase, kSize), kPrivate) << "the stream has not looked";
    look();
    EXPECT_EQ(place(kBase + 5, kMiB), kBase + 5);
    EXPECT_EQ(place(kBase + 5, kMiB, true), kPrivate) << "a graph may live longer";
    EXPECT_EQ(place(kBase + kMiB, kSize), kPrivate) << "it ends before";
    // Other memory at the same address.
    world.memory(0).free(kBase);
    world.memory(0).allocate(kBase, kSize, FakeKind::kIpc);
    EXPECT_EQ(place(kBase + 5, kMiB), kPrivate);
    ASSERT_TRUE(eventually([&] {
      look();
      return place(kBase + 5, kMiB) == kBase + 5;
    }));
    world.memory(0).allocate(2 * kBase, 8 * kMiB, FakeKind::kIpc);
    for (int i = 0; i < 3; i++, look()) EXPECT_EQ(place(2 * kBase, kMiB), kPrivate) << "refused";
    // What is freed is taken out by the sweep.
    const auto filled = [&] {
      size_t all = 0;
      for (size_t slot = 0; slot < NicBuffers::kSlots; slot++) all += nics->generation(slot) % 2;
      return all;
    };
    EXPECT_EQ(filled(), 2u);
    world.memory(0).free(kBase);
    EXPECT_TRUE(eventually([&] { return filled() == 1; }));
    EXPECT_EQ(world.device.wrong, "");
  }
}

TEST(PlainBuffer, CostsOneQueryPerLaunch) {
  SharingWorld world(2);
  world.memory(0).allocate(kBase, kSize, FakeKind::kIpc);
  ASSERT_TRUE(world.becomes_shared(0, kBase, kSize));
  uint64_t least = 100;
  for (int i = 0; i < 100; i++) {  // the sweep of the background thread queries, too
    const uint64_t before = world.memory(0).queries();
    world.place(0, kBase, kSize);
    least = std::min(least, world.memory(0).queries() - before);
  }
  EXPECT_EQ(least, 1u);
}

TEST(PlainBuffer, IsQueriedOnceInALaunchThatNamesItTwice) {
  SharingWorld world(2);
  world.memory(0).allocate(kBase, kSize, FakeKind::kIpc);
  ASSERT_TRUE(world.becomes_shared(0, kBase, kSize));
  cuda::Registrations& own = *world.ranks[0];
  uint64_t least = 100;
  for (int i = 0; i < 100; i++) {
    const uint64_t before = world.memory(0).queries();
    own.begin_launch(false);
    for (const uint64_t at : {kBase, kBase, kBase + kMiB})
      EXPECT_NE(own.place(reinterpret_cast<void*>(at), kMiB), kPrivate);
    own.end_launch(nullptr);
    least = std::min(least, world.memory(0).queries() - before);
  }
  EXPECT_EQ(least, 1u);
}

TEST(PlainBuffer, ThatIsFreedRightAfterItsCallIsNotTouchedAnyMore) {
  for (const FakeKind kind : {FakeKind::kIpc, FakeKind::kDescriptor}) {
    SharingWorld world(2);
    for (uint64_t round = 0; round < 300; round++) {
      const uint64_t at = kBase + round % 3 * kSize;
      world.memory(0).allocate(at, kSize, kind);
      EXPECT_EQ(world.place(0, at, kMiB), kPrivate);
      world.place(1, 1, 1);  // the peer begins to map it
      world.memory(0).free(at);
    }
    EXPECT_TRUE(eventually([&] { return world.device.alive() == 0; }));
    EXPECT_EQ(world.device.wrong, "");
  }
}

// Launches share a few allocations each, so that none takes long.
TEST(PlainBuffer, OfManyAllocationsIsSharedByAFewLaunches) {
  constexpr uint64_t kPieces = 100;
  SharingWorld world(2);
  for (uint64_t piece = 0; piece < kPieces; piece++)
    world.memory(0).allocate(kBase + piece * 2 * kMiB, 2 * kMiB, FakeKind::kDescriptor);
  uint64_t shared = 0;
  for (int launches = 0; launches < 20; launches++) {
    EXPECT_EQ(world.place(0, kBase, kPieces * 2 * kMiB), kPrivate);
    const uint64_t now = world.memory(0).shares();
    EXPECT_LE(now - shared, 8u);
    shared = now;
  }
  EXPECT_EQ(shared, kPieces) << "each once";
  EXPECT_TRUE(world.becomes_shared(0, kBase, kPieces * 2 * kMiB));
}

TEST(PlainBuffer, IsUsedByOnePeerBeforeAnotherHasAnswered) {
  SharingWorld world(4);
  world.memory(2).refuses = true;
  world.memory(3).refuses = true;
  world.memory(0).allocate(kBase, kSize, FakeKind::kIpc);
  // Rank 3 refuses first. What a launch remembers of that must not keep rank 1 from it.
  ASSERT_TRUE(eventually([&] {
    world.place(0, kBase, kSize, 3);
    world.place(3, 1, 1);
    return world.memory(3).maps() > 0;
  }));
  for (int i = 0; i < 10; i++) EXPECT_EQ(world.place(0, kBase, kSize), kPrivate);
  ASSERT_TRUE(world.becomes_shared(0, kBase, kSize, 1));
  EXPECT_EQ(world.place(0, kBase, kSize, 2), kPrivate);
}

TEST(PlainBuffer, StaysPrivateIfItIsSmallOrHasNoHandle) {
  SharingWorld world(2);
  world.memory(0).allocate(kBase, kMiB / 2, FakeKind::kIpc);
  world.memory(0).allocate(2 * kBase, kSize, FakeKind::kPrivate);
  world.memory(0).allocate(3 * kBase, kSize, FakeKind::kIpc);
  for (const uint64_t at : {kBase, 2 * kBase, 3 * kBase}) world.place(0, at, kMiB / 2);
  ASSERT_TRUE(world.becomes_shared(0, 3 * kBase, kMiB));  // the others were served before
  EXPECT_EQ(world.place(0, kBase, kMiB / 2), kPrivate);
  EXPECT_EQ(world.place(0, 2 * kBase, kMiB / 2), kPrivate);
  world.memory(0).free(2 * kBase);
  world.memory(0).allocate(2 * kBase, kSize, FakeKind::kIpc);
  EXPECT_TRUE(world.becomes_shared(0, 2 * kBase, kMiB / 2)) << "other memory at the same address";
}

TEST(PlainBuffer, StaysPrivateWhereSharingIsOff) {
  SharingOptions off = SharingWorld::usual();
  off.automatic = false;
  for (const bool crowded : {false, true}) {
    SharingWorld world(3, crowded ? SharingWorld::usual() : off,
                       crowded ? std::vector<uint64_t>{1, 1, 2} : std::vector<uint64_t>{});
    world.memory(2).allocate(kBase, kSize, FakeKind::kIpc);
    world.memory(2).allocate(2 * kBase, kSize, FakeKind::kIpc);
    world.memory(2).ours = {2 * kBase};
    ASSERT_TRUE(world.becomes_shared(2, 2 * kBase, kSize)) << "memory of ncclMemAlloc";
    EXPECT_EQ(world.place(2, kBase, kSize), kPrivate);
    EXPECT_EQ(world.place(2, kBase, kSize), kPrivate);
  }
}

TEST(PlainBuffer, IsPrivateInCapturedCalls) {
  SharingWorld world(2);
  world.memory(0).allocate(kBase, kSize, FakeKind::kIpc);
  world.memory(0).allocate(2 * kBase, kSize, FakeKind::kIpc);
  world.memory(0).ours = {2 * kBase};
  ASSERT_TRUE(world.becomes_shared(0, kBase, kSize));
  ASSERT_TRUE(world.becomes_shared(0, 2 * kBase, kSize));
  EXPECT_EQ(world.place(0, kBase, kSize, -1, true), kPrivate);
  EXPECT_NE(world.place(0, 2 * kBase, kSize, -1, true), kPrivate) << "memory of ncclMemAlloc";
  world.ranks[0]->add(reinterpret_cast<void*>(kBase), kSize);
  EXPECT_NE(world.place(0, kBase, kSize, -1, true), kPrivate) << "registered";
}

TEST(FreedMemory, IsNotUsedEvenIfOtherMemoryHasItsAddress) {
  for (const FakeKind kind : {FakeKind::kIpc, FakeKind::kDescriptor}) {
    SharingWorld world(2);
    for (uint64_t round = 1; round <= 20; round++) {
      world.memory(0).allocate(kBase, round % 3 == 0 ? 2 * kSize : kSize, kind);
      world.memory(0).write(kBase, round);
      ASSERT_EQ(world.place(0, kBase, kMiB), kPrivate) << round;
      ASSERT_TRUE(world.becomes_shared(0, kBase, kMiB)) << round;
      EXPECT_EQ(world.read(1, 0, world.place(0, kBase, kMiB)), round);
      world.memory(0).free(kBase);
    }
    EXPECT_EQ(world.device.wrong, "");
  }
}

TEST(FreedMemory, IsUnmappedSoonWithoutAnyCall) {
  SharingWorld world(3);
  for (const uint64_t at : {kBase, 2 * kBase}) {
    world.memory(1).allocate(at, kSize, at == kBase ? FakeKind::kIpc : FakeKind::kDescriptor);
    ASSERT_TRUE(world.becomes_shared(1, at, kSize));
    world.memory(1).free(at);
  }
  EXPECT_TRUE(eventually([&] { return world.device.alive() == 0; }, milliseconds(5000)));
}

TEST(FreedMemory, IsUnmappedSoonWhileCallsAreUnderWay) {
  SharingWorld world(2);
  world.memory(0).allocate(kBase, kSize, FakeKind::kIpc);
  ASSERT_TRUE(world.becomes_shared(0, kBase, kSize));
  world.memory(1).quiet = false;
  const auto freed = std::chrono::steady_clock::now();
  world.memory(0).free(kBase);
  std::this_thread::sleep_for(milliseconds(100));
  const size_t alive = world.device.alive();
  if (std::chrono::steady_clock::now() - freed < milliseconds(250)) {
    EXPECT_EQ(alive, 1u) << "closing may wait for the calls";
  }
  EXPECT_TRUE(eventually([&] { return world.device.alive() == 0; }, milliseconds(5000)));
}

// Peers may keep their communicators for long.
TEST(FreedMemory, OfARankWithoutCommunicatorIsUnmappedByItsPeers) {
  SharingWorld world(3);
  world.memory(0).allocate(kBase, kSize, FakeKind::kIpc);
  world.memory(0).allocate(2 * kBase, kSize, FakeKind::kDescriptor);
  for (const uint64_t at : {kBase, 2 * kBase}) ASSERT_TRUE(world.becomes_shared(0, at, kSize));
  world.ranks[0].reset();
  for (const uint64_t at : {kBase, 2 * kBase}) world.memory(0).free(at);
  EXPECT_TRUE(eventually([&] { return world.device.alive() == 0; }));
  EXPECT_EQ(world.device.wrong, "");
}

TEST(FreedMemory, StaysMappedAfterAnAbort) {
  SharingWorld world(2);
  world.memory(0).allocate(kBase, kSize, FakeKind::kIpc);
  ASSERT_TRUE(world.becomes_shared(0, kBase, kSize));
  world.memory(0).stopped = true;
  std::this_thread::sleep_for(milliseconds(100));
  world.memory(0).free(kBase);
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(world.device.alive(), 1u);
  world.ranks.clear();
  EXPECT_EQ(world.device.alive(), 0u);
}

TEST(Segment, OfManyAllocationsIsContiguousForPeers) {
  SharingWorld world(2);
  for (uint64_t piece = 0; piece < 8; piece++) {
    world.memory(0).allocate(kBase + piece * 2 * kMiB, 2 * kMiB, FakeKind::kDescriptor);
    world.memory(0).write(kBase + piece * 2 * kMiB, 100 + piece);
  }
  ASSERT_TRUE(world.becomes_shared(0, kBase + kMiB, 6 * kMiB));
  const uint64_t place = world.place(0, kBase + kMiB, 6 * kMiB);
  for (uint64_t piece = 0; piece < 3; piece++)
    EXPECT_EQ(world.read(1, 0, place + piece * 2 * kMiB), 100 + piece);
  // A buffer that reaches further shares only what is new. One piece is exchanged.
  ASSERT_TRUE(world.becomes_shared(0, kBase, 16 * kMiB));
  world.memory(0).free(kBase + 4 * kMiB);
  EXPECT_EQ(world.place(0, kBase, 16 * kMiB), kPrivate);
  EXPECT_NE(world.place(0, kBase, 4 * kMiB), kPrivate);
  world.memory(0).allocate(kBase + 4 * kMiB, 2 * kMiB, FakeKind::kDescriptor);
  world.memory(0).write(kBase + 4 * kMiB, 500);
  ASSERT_TRUE(world.becomes_shared(0, kBase, 16 * kMiB));
  EXPECT_EQ(world.read(1, 0, world.place(0, kBase, 16 * kMiB) + 5 * kMiB), 500u);
  EXPECT_TRUE(eventually([&] {
    std::lock_guard lock(world.device.mutex);
    for (const auto& [id, physical] : world.device.all)
      if (physical.lent) return false;
    return true;
  })) << "descriptors are lent for ever";
  EXPECT_EQ(world.device.wrong, "");
}

TEST(SharedMemoryCap, GivesUpWhatCallsHaveNotUsedForLongest) {
  SharingOptions options = SharingWorld::usual();
  options.most_bytes = 3 * kSize;
  options.idle = milliseconds(200);
  SharingWorld world(2, options);
  for (uint64_t i = 1; i <= 4; i++) world.memory(0).allocate(i * kBase, kSize, FakeKind::kIpc);
  for (uint64_t i = 1; i <= 3; i++) ASSERT_TRUE(world.becomes_shared(0, i * kBase, kSize));
  for (uint64_t i = 1; i <= 3; i++) EXPECT_NE(world.place(0, i * kBase, kSize), kPrivate);
  world.memory(0).ended = false;
  std::this_thread::sleep_for(milliseconds(250));
  for (const uint64_t used : {1, 3}) EXPECT_NE(world.place(0, used * kBase, kSize), kPrivate);
  // The second one goes, but not before the launches so far have ended.
  ASSERT_TRUE(eventually([&] {
    world.place(0, 4 * kBase, kSize);
    return world.memory(0).marks > 0;
  }));
  EXPECT_EQ(world.place(0, 2 * kBase, kSize), kPrivate);
  world.memory(0).free(2 * kBase);
  std::this_thread::sleep_for(milliseconds(20));
  world.memory(0).ended = true;
  for (const uint64_t used : {1, 3}) EXPECT_NE(world.place(0, used * kBase, kSize), kPrivate);
  ASSERT_TRUE(world.becomes_shared(0, 4 * kBase, kSize));
  EXPECT_EQ(world.device.wrong, "");
}

TEST(SharedMemoryCap, KeepsMemoryOnTheBoardUntilLaunchesHaveEnded) {
  SharingOptions options = SharingWorld::usual();
  options.most_bytes = kSize;
  options.idle = milliseconds(20);
  SharingWorld world(2, options);
  for (const uint64_t i : {1, 2}) world.memory(0).allocate(i * kBase, kSize, FakeKind::kIpc);
  ASSERT_TRUE(world.becomes_shared(0, kBase, kSize));
  const uint64_t place = world.place(0, kBase, kSize);
  world.memory(0).ended = false;
  world.memory(1).start_reading(world.number(0, place), 0);
  std::this_thread::sleep_for(milliseconds(50));
  ASSERT_TRUE(eventually([&] {
    world.place(0, 2 * kBase, kSize);
    return world.memory(0).marks > 0;
  }));
  std::this_thread::sleep_for(milliseconds(200));
  world.memory(1).end_reading(world.number(0, place), 0);
  EXPECT_EQ(world.device.wrong, "");
  world.memory(0).ended = true;
  EXPECT_TRUE(world.becomes_shared(0, 2 * kBase, kSize));
}

TEST(RefusingPeer, KeepsCollectivesPrivateButNotMessagesToOthers) {
  SharingWorld world(3);
  world.memory(2).refuses = true;
  world.memory(0).allocate(kBase, kSize, FakeKind::kIpc);
  ASSERT_TRUE(world.becomes_shared(0, kBase, kSize, 1));
  EXPECT_EQ(world.place(0, kBase, kSize, 2), kPrivate);
  EXPECT_EQ(world.place(0, kBase, kSize), kPrivate);
  world.memory(1).allocate(kBase, kSize, FakeKind::kDescriptor);
  ASSERT_TRUE(world.becomes_shared(1, kBase, kSize, 0));
}

// Four pieces that are registered, and part of the second one once more.
struct TwiceRegistered {
  SharingWorld world{2, registered_only()};
  static SharingOptions registered_only() {
    SharingOptions options = SharingWorld::usual();
    options.automatic = false;
    return options;
  }
  static void* at(uint64_t offset) { return reinterpret_cast<void*>(kBase + offset); }
  TwiceRegistered() {
    for (uint64_t piece = 0; piece < 4; piece++)
      world.memory(0).allocate(kBase + piece * kSize, kSize, FakeKind::kDescriptor);
    world.ranks[0]->add(at(0), 4 * kSize);
    world.ranks[0]->add(at(kSize), kMiB);
  }
};

TEST(RegisteredMemory, IsSharedUntilTheLastRegistrationEnds) {
  TwiceRegistered memory;
  SharingWorld& world = memory.world;
  const auto at = TwiceRegistered::at;
  ASSERT_TRUE(world.becomes_shared(0, kBase, 4 * kSize));
  world.ranks[0]->remove(at(0));
  EXPECT_EQ(world.place(0, kBase, kSize), kPrivate);
  EXPECT_NE(world.place(0, kBase + kSize, kSize), kPrivate);
  world.ranks[0]->remove(at(kSize));
  EXPECT_EQ(world.place(0, kBase + kSize, kSize), kPrivate);
  for (uint64_t piece = 0; piece < 4; piece++) world.memory(0).free(kBase + piece * kSize);
  EXPECT_TRUE(eventually([&] { return world.device.alive() == 0; }, milliseconds(5000)));
}

TEST(RegisteredMemory, InsideOtherRegisteredMemoryEndsAlone) {
  TwiceRegistered memory;
  SharingWorld& world = memory.world;
  const auto at = TwiceRegistered::at;
  ASSERT_TRUE(world.becomes_shared(0, kBase, 4 * kSize));
  world.ranks[0]->remove(at(kSize));
  EXPECT_NE(world.place(0, kBase, 4 * kSize), kPrivate);
  world.ranks[0]->remove(at(0));
  EXPECT_EQ(world.place(0, kBase + kSize, kSize), kPrivate);
}

TEST(RegisteredMemory, OfMoreAllocationsThanDescriptorsIsSharedByCalls) {
  constexpr uint64_t kPieces = 60;
  SharingOptions off = SharingWorld::usual();
  off.automatic = false;
  off.idle = milliseconds(5);  // until it is tried again
  SharingWorld world(2, off);
  world.memory(0).most_lent = 10;
  for (uint64_t piece = 0; piece < kPieces; piece++)
    world.memory(0).allocate(kBase + piece * 2 * kMiB, 2 * kMiB, FakeKind::kDescriptor);
  void* const buffer = reinterpret_cast<void*>(kBase);
  world.ranks[0]->add(buffer, kPieces * 2 * kMiB);
  ASSERT_TRUE(world.becomes_shared(0, kBase, kPieces * 2 * kMiB));
  EXPECT_NE(world.place(0, kBase, kPieces * 2 * kMiB, -1, true), kPrivate) << "in a graph";
  world.ranks[0]->remove(buffer);
  EXPECT_EQ(world.place(0, kBase, 2 * kMiB), kPrivate);
  for (uint64_t piece = 0; piece < kPieces; piece++) world.memory(0).free(kBase + piece * 2 * kMiB);
  EXPECT_TRUE(eventually([&] { return world.device.alive() == 0; }));
  EXPECT_EQ(world.device.wrong, "");
}

TEST(RegisteredMemory, WithAPartThatHasNoHandleIsNotShared) {
  SharingWorld world(2);
  world.memory(0).allocate(kBase, kSize, FakeKind::kDescriptor);
  world.memory(0).allocate(kBase + kSize, kSize, FakeKind::kPrivate);
  world.ranks[0]->add(reinterpret_cast<void*>(kBase), 2 * kSize);
  EXPECT_EQ(world.place(0, kBase, 2 * kSize), kPrivate);
  world.ranks[0]->remove(reinterpret_cast<void*>(kBase));
}

}  // namespace
}  // namespace weft::test
