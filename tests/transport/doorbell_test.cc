// No wake-up is ever lost. The bell prevents or ends every sleep, long before its time-out.
#include "src/transport/doorbell.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/support/sampling.h"

namespace weft::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kForever = 20'000'000'000;  // ns

uint64_t load(const uint64_t& at) { return __atomic_load_n(&at, __ATOMIC_SEQ_CST); }
void store(uint64_t& at, uint64_t value) { __atomic_store_n(&at, value, __ATOMIC_SEQ_CST); }

// Waits as the executor does, but without spinning first, so that every round tries to sleep.
void wait_until(Doorbell& door, const uint64_t& counter, uint64_t goal) {
  while (load(counter) < goal) {
    const uint32_t ticket = prepare_sleep(door);
    if (load(counter) >= goal) return;
    const auto before = Clock::now();
    sleep(door, ticket, kForever);
    ASSERT_LT(Clock::now() - before, std::chrono::seconds(15)) << "a wake-up was lost at " << goal;
  }
}

TEST(Doorbell, LosesNoWakeUpBetweenTwoThreads) {
  const uint64_t rounds = kSanitized ? 5000 : 30000;
  Doorbell doors[2];
  uint64_t counters[2] = {0, 0};
  std::thread other([&] {
    for (uint64_t i = 1; i <= rounds; i++) {
      wait_until(doors[1], counters[0], i);
      store(counters[1], i);
      ring({&doors[0], -1});
    }
  });
  for (uint64_t i = 1; i <= rounds; i++) {
    store(counters[0], i);
    ring({&doors[1], -1});
    wait_until(doors[0], counters[1], i);
  }
  other.join();
}

TEST(Doorbell, LosesNoWakeUpOfSeveralRingers) {
  constexpr int kRingers = 3;
  const uint64_t each = kSanitized ? 2000 : 10000;
  Doorbell door;
  uint64_t counter = 0;
  std::vector<std::thread> ringers;
  for (int t = 0; t < kRingers; t++)
    ringers.emplace_back([&] {
      for (uint64_t i = 0; i < each; i++) {
        __atomic_fetch_add(&counter, 1, __ATOMIC_SEQ_CST);
        ring({&door, -1});
        if (i % 64 == 0) std::this_thread::yield();
      }
    });
  for (uint64_t seen = 0; seen < kRingers * each;) {
    wait_until(door, counter, seen + 1);
    seen = load(counter);
  }
  for (std::thread& thread : ringers) thread.join();
}

TEST(Doorbell, OpensForEveryoneOnWakeAll) {
  Doorbell door;
  const uint32_t ticket = prepare_sleep(door);
  std::thread waker([&] { wake_all(door); });
  const auto before = Clock::now();
  sleep(door, ticket, kForever);  // the ticket has changed, whether or not the sleep began first
  EXPECT_LT(Clock::now() - before, std::chrono::seconds(15));
  waker.join();
}

TEST(Doorbell, LetsASleeperGoAfterItsTime) {
  Doorbell door;
  const uint32_t ticket = prepare_sleep(door);
  const auto before = Clock::now();
  sleep(door, ticket, 2'000'000);
  EXPECT_LT(Clock::now() - before, std::chrono::seconds(10));
}

TEST(Doorbell, RingsAProxyThroughItsEventDescriptorOnlyWhenItSleeps) {
  Doorbell door;
  const int fd = eventfd(0, EFD_NONBLOCK);
  const Bell bell{&door, fd};
  uint64_t rung = 0;
  ring(bell);
  EXPECT_EQ(read(fd, &rung, sizeof rung), -1) << "nobody sleeps";
  prepare_sleep(door);
  ring(bell);
  ring(bell);
  EXPECT_EQ(read(fd, &rung, sizeof rung), static_cast<ssize_t>(sizeof rung));
  EXPECT_EQ(rung, 1u) << "one ring wakes";
  close(fd);
}

}  // namespace
}  // namespace weft::test
