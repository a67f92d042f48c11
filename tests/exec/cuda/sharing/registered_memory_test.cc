// Memory that is registered or deregistered while calls use it, or after they found it private.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/exec/cuda/sharing/sharing_world.h"

namespace weft::test {
namespace {

using cuda::kPrivate;
using cuda::SharingOptions;
using std::chrono::milliseconds;

constexpr uint64_t kPlace = uint64_t{11} << 36;

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

SharingOptions impatient(bool automatic) {
  SharingOptions options = SharingWorld::usual();
  options.automatic = automatic;
  options.idle = milliseconds(5);  // until it is tried again
  return options;
}

// The calls share what add() found no descriptors for.
TEST(RegisteredMemory, ThatIsDeregisteredWhileACallSharesItIsPrivate) {
  SharingWorld world(2, impatient(false));
  FakeMemory& memory = world.memory(0);
  memory.allocate(kPlace, 2 * kMiB, FakeKind::kDescriptor);
  memory.most_lent = 0;
  world.ranks[0]->add(pointer(kPlace), 2 * kMiB);
  memory.most_lent = 10;
  int removals = 0;
  memory.during_share = [&] {
    if (removals++ == 0) world.ranks[0]->remove(pointer(kPlace));
  };
  EXPECT_EQ(world.place(0, kPlace, 2 * kMiB), kPrivate);
  ASSERT_EQ(removals, 1);
  EXPECT_FALSE(eventually(
      [&] {
        world.place(1, 1, 1);
        return world.place(0, kPlace, 2 * kMiB) != kPrivate;
      },
      milliseconds(200)));
  memory.free(kPlace);
  EXPECT_TRUE(eventually([&] { return world.device.alive() == 0; }));
  EXPECT_EQ(world.device.wrong, "");
}

// add() puts the allocation on the board just before the call does.
TEST(RegisteredMemory, StaysRegisteredIfACallSharesItMeanwhile) {
  SharingWorld world(2, impatient(true));
  FakeMemory& memory = world.memory(0);
  memory.allocate(kPlace, 2 * kMiB, FakeKind::kIpc);
  int shares = 0;
  memory.during_share = [&] {
    if (shares++ == 0) world.ranks[0]->add(pointer(kPlace), 2 * kMiB);
  };
  world.place(0, kPlace, 2 * kMiB);
  EXPECT_EQ(shares, 2);
  ASSERT_TRUE(world.becomes_shared(0, kPlace, 2 * kMiB));
  EXPECT_NE(world.place(0, kPlace, 2 * kMiB, -1, true), kPrivate)
      << "registered, so also in graphs";
  world.ranks[0]->remove(pointer(kPlace));
  EXPECT_EQ(world.place(0, kPlace, 2 * kMiB, -1, true), kPrivate);
  memory.free(kPlace);
  EXPECT_TRUE(eventually([&] { return world.device.alive() == 0; }));
  EXPECT_EQ(world.device.wrong, "");
}

// Sanitizers look on.
TEST(RegisteredMemory, ComesAndGoesBesideCalls) {
  constexpr uint64_t kBuffers = 8;
  const auto buffer = [](uint64_t n) { return kPlace + n * 4 * kMiB; };
  SharingWorld world(2, impatient(false));
  FakeMemory& memory = world.memory(0);
  memory.most_lent = 3;  // calls share the rest
  for (uint64_t n = 0; n < kBuffers; n++)
    memory.allocate(buffer(n), 2 * kMiB, FakeKind::kDescriptor);
  std::atomic<bool> done = false;
  std::thread registers([&] {
    for (int round = 0; round < 300; round++) {
      for (uint64_t n = 0; n < kBuffers; n++) world.ranks[0]->add(pointer(buffer(n)), 2 * kMiB);
      for (uint64_t n = 0; n < kBuffers; n++) world.ranks[0]->remove(pointer(buffer(n)));
    }
    done = true;
  });
  for (uint64_t call = 0; !done; call++) {
    world.place(0, buffer(call % kBuffers), 2 * kMiB);
    world.place(1, 1, 1);
  }
  registers.join();
  for (uint64_t n = 0; n < kBuffers; n++) {
    EXPECT_EQ(world.place(0, buffer(n), 2 * kMiB), kPrivate);
    memory.free(buffer(n));
  }
  EXPECT_TRUE(eventually([&] { return world.device.alive() == 0; }));
}

TEST(RegisteredMemory, ThatWasTooSmallForCallsIsSharedOnceThereIsRoom) {
  constexpr uint64_t kSmall = 64 << 10;
  SharingWorld world(2, impatient(true));
  FakeMemory& memory = world.memory(0);
  memory.allocate(kPlace, kSmall, FakeKind::kDescriptor);
  EXPECT_EQ(world.place(0, kPlace, kSmall), kPrivate);
  EXPECT_EQ(world.place(0, kPlace, kSmall), kPrivate) << "and is remembered";
  memory.most_lent = 0;
  world.ranks[0]->add(pointer(kPlace), kSmall);
  EXPECT_EQ(world.place(0, kPlace, kSmall), kPrivate);
  memory.most_lent = 10;
  EXPECT_TRUE(world.becomes_shared(0, kPlace, kSmall));
  world.ranks[0]->remove(pointer(kPlace));
}

}  // namespace
}  // namespace weft::test
