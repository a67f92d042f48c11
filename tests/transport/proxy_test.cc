// Proxies of GPUs serve each other's streams.
#include "src/transport/proxy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "src/transport/net_stream.h"
#include "tests/support/processes.h"

namespace weft {
namespace {

using namespace std::chrono_literals;

bool comes_true(const std::function<bool()>& condition) {
  for (int tries = 0; tries < 5000; tries++) {
    if (condition()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

// Has work whenever the test sets it, and takes as long as the test says.
class WatchedStream final : public NetStream {
 public:
  WatchedStream(Proxy& proxy, Doorbell& door, bool takes_help)
      : NetStream({}, proxy, Mapping::anonymous(4096), door, nullptr), takes_help_(takes_help) {}
  bool progress(bool) noexcept override {
    if (inside.exchange(true)) shared = true;
    const bool moved = work.exchange(false);
    if (moved) {
      thread = std::this_thread::get_id();
      begun = true;
      while (slow) std::this_thread::sleep_for(100us);
      done = true;
    }
    inside = false;
    return moved;
  }
  bool takes_help() const override { return takes_help_; }

  std::atomic<bool> work{false}, slow{false}, begun{false}, done{false};
  std::atomic<bool> inside{false}, shared{false};
  std::atomic<std::thread::id> thread{};

 protected:
  bool idle() const override { return true; }
  bool asks_kernel() const override { return false; }

 private:
  const bool takes_help_;
};

// Must ask the kernel, and had news just now.
class AskingStream final : public NetStream {
 public:
  explicit AskingStream(Doorbell& door)
      : NetStream({}, Proxy::next(), Mapping::anonymous(4096), door, nullptr) {
    EXPECT_TRUE(look(0, begin_, false));
    news_ = false;
  }
  bool progress(bool) noexcept override {
    asked_++;
    return news_;
  }
  // How often it asks in 100 rounds, so long after the news.
  int asked_after(std::chrono::microseconds time, bool patient) {
    asked_ = 0;
    for (uint32_t round = 0; round < 100; round++) look(round, begin_ + time, patient);
    return asked_;
  }

 protected:
  bool idle() const override { return true; }
  bool asks_kernel() const override { return true; }

 private:
  const Clock::time_point begin_ = Clock::now();
  bool news_ = true;
  int asked_ = 0;
};

// Half of a ping-pong between GPUs takes tens of microseconds, in which a proxy has many rounds.
TEST(NetStream, OfAPatientProxyAsksTheKernelInEveryRoundForLonger) {
  Doorbell door;
  EXPECT_EQ(AskingStream(door).asked_after(63us, true), 100);
  EXPECT_EQ(AskingStream(door).asked_after(149us, true), 100);
  EXPECT_LT(AskingStream(door).asked_after(160us, true), 50);
  EXPECT_LT(AskingStream(door).asked_after(63us, false), 50);
}

// Two proxies that poll. The first has the streams and is busy with one of them.
class BusyProxy : public testing::Test {
 protected:
  BusyProxy() {
    for (Proxy* proxy : {&busy_, &other_}) proxy->keep_polling(true);
    slow_->slow = true;
    for (const auto& stream : streams_) busy_.add(stream);
    // A thread that has not begun to poll may still move the first of two messages.
    for (int message = 0; message < 2; message++) {
      alone_->done = false;
      alone_->work = true;
      EXPECT_TRUE(comes_true([&] { return alone_->done.load(); }));
    }
    alone_->begun = alone_->done = false;
    slow_->work = true;
    EXPECT_TRUE(comes_true([&] { return slow_->begun.load(); }));
  }
  ~BusyProxy() override {
    for (const auto& stream : streams_) stream->slow = false;
    for (const auto& stream : streams_) {
      busy_.remove(stream, 0);
      EXPECT_FALSE(stream->shared);
    }
    for (Proxy* proxy : {&busy_, &other_}) proxy->keep_polling(false);
  }

  Proxy &busy_ = Proxy::next(2), &other_ = Proxy::next(2);
  Doorbell door_;
  const std::shared_ptr<WatchedStream> slow_ = std::make_shared<WatchedStream>(busy_, door_, false),
                                       helped_ =
                                           std::make_shared<WatchedStream>(busy_, door_, true),
                                       alone_ =
                                           std::make_shared<WatchedStream>(busy_, door_, false);
  const std::vector<std::shared_ptr<WatchedStream>> streams_{slow_, helped_, alone_};
};

TEST_F(BusyProxy, IsHelpedWhereThePluginAllowsIt) {
  alone_->work = true;
  for (int message = 0; message < 100; message++) {
    helped_->done = false;
    helped_->work = true;
    ASSERT_TRUE(comes_true([&] { return helped_->done.load(); }));
    EXPECT_NE(helped_->thread.load(), slow_->thread.load());
  }
  EXPECT_FALSE(alone_->begun);
  slow_->slow = false;
  EXPECT_TRUE(comes_true([&] { return alone_->done.load(); }));
  EXPECT_EQ(alone_->thread.load(), slow_->thread.load());
}

TEST_F(BusyProxy, LooksAfterItsStreamsItselfWhenItComesBack) {
  slow_->slow = false;
  ASSERT_TRUE(comes_true([&] { return slow_->done.load(); }));
  // Either thread may move the stream. Its own thread does so sooner or later.
  EXPECT_TRUE(comes_true([&] {
    helped_->done = false;
    helped_->work = true;
    return comes_true([&] { return helped_->done.load(); }) &&
           helped_->thread.load() == slow_->thread.load();
  }));
}

// After remove() the objects that a stream refers to may be gone.
TEST_F(BusyProxy, IsNotDoneWithAStreamThatAHelperHas) {
  helped_->slow = true;
  helped_->work = true;
  ASSERT_TRUE(comes_true([&] { return helped_->begun.load(); }));
  slow_->slow = false;
  auto removed = std::async(std::launch::async, [&] { busy_.remove(helped_, 0); });
  EXPECT_EQ(removed.wait_for(50ms), std::future_status::timeout);
  helped_->slow = false;
  EXPECT_EQ(removed.wait_for(5s), std::future_status::ready);
  EXPECT_TRUE(helped_->done);
}

// Without a GPU, a proxy's thread moves its streams, or the thread that drives them does.
TEST(Proxy, ThatDoesNotWatchIsNotHelped) {
  Proxy &asleep = Proxy::next(2), &watching = Proxy::next(2);
  Doorbell door;
  const auto mark = std::make_shared<WatchedStream>(watching, door, false),
             stream = std::make_shared<WatchedStream>(asleep, door, true);
  watching.keep_polling(true);
  watching.add(mark);
  mark->work = true;
  EXPECT_TRUE(comes_true([&] { return mark->done.load(); }));
  asleep.enter();  // keeps its thread out, once its current round is over
  asleep.add(stream);
  stream->work = true;
  std::this_thread::sleep_for(20ms);
  EXPECT_TRUE(comes_true([&] { return asleep.drive(*stream, true) || stream->done; }));
  EXPECT_NE(stream->thread.load(), mark->thread.load());
  asleep.leave(false);
  asleep.remove(stream, 0);
  watching.remove(mark, 0);
  watching.keep_polling(false);
}

// A folder with devices as /sys has them: their names are the first cores near them.
struct Devices {
  Devices() {
    std::string name = (std::filesystem::temp_directory_path() / "weft-proxies-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for the test");
    folder = name;
  }
  ~Devices() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  std::string near(int core, int number = 0) const {
    const auto device = folder / fmt::format("{}.{}", core, number);
    std::filesystem::create_directories(device);
    std::ofstream(device / "local_cpulist") << core << "\n";
    return device;
  }
  std::filesystem::path folder;
};

// Two cores that this process may use; empty: there is only one.
std::vector<int> two_cores() {
  cpu_set_t allowed;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
    for (int core = 0; core < CPU_SETSIZE && cores.size() < 2; core++)
      if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  return cores.size() == 2 ? cores : std::vector<int>{};
}

bool runs_only_on(const Proxy& proxy, int core, int other) {
  return proxy.may_run_on(core) && !proxy.may_run_on(other);
}

// Proxies live as long as the process, so each order of NICs needs a process of its own.
WEFT_SCENARIO(proxies_of_two_sockets) {
  const Devices devices;
  const std::vector<int> cores = two_cores();
  const int a = cores.at(0), b = cores.at(1);
  std::map<Proxy*, int> at_a, at_b;
  if (context.argument == "in turn") {
    for (int i = 0; i < 8; i++) {
      at_a[&Proxy::next(4, devices.near(a, i % 2))]++;
      at_b[&Proxy::next(4, devices.near(b, i % 2))]++;
    }
  } else {
    for (int i = 0; i < 8; i++) at_a[&Proxy::next(4, devices.near(a))]++;
    EXPECT_EQ(at_a.size(), 4u) << "one NIC alone has all proxies";
    for (const auto& [proxy, streams] : at_a) EXPECT_EQ(streams, 2);
    for (int i = 0; i < 8; i++) at_b[&Proxy::next(4, devices.near(b))]++;
    at_a.clear();
    for (int i = 0; i < 8; i++) at_a[&Proxy::next(4, devices.near(a))]++;
  }
  EXPECT_EQ(at_a.size(), 2u);
  EXPECT_EQ(at_b.size(), 2u);
  for (const auto& [proxy, streams] : at_a) {
    EXPECT_FALSE(at_b.contains(proxy));
    EXPECT_TRUE(runs_only_on(*proxy, a, b));
  }
  for (const auto& [proxy, streams] : at_b) EXPECT_TRUE(runs_only_on(*proxy, b, a));
}

WEFT_SCENARIO(one_proxy_for_two_sockets) {
  const Devices devices;
  const std::vector<int> cores = two_cores();
  Proxy& proxy = Proxy::next(1, devices.near(cores.at(0)));
  EXPECT_TRUE(runs_only_on(proxy, cores[0], cores[1]));
  EXPECT_EQ(&Proxy::next(1, devices.near(cores[1])), &proxy);
  EXPECT_TRUE(proxy.may_run_on(cores[0]) && proxy.may_run_on(cores[1]));
  EXPECT_EQ(&Proxy::next(1, "/no/such/device"), &proxy);
}

TEST(Proxy, RunsNearTheNicsThatItServes) {
  if (two_cores().empty()) GTEST_SKIP() << "this process may use one core only";
  for (const char* order : {"in turn", "one after the other"}) {
    test::ProcessOptions options;
    options.argument = order;
    test::run_ranks_as_processes("proxies_of_two_sockets", 1, options);
  }
  test::run_ranks_as_processes("one_proxy_for_two_sockets", 1);
}

// Ranks that are threads connect at the same time.
TEST(Proxy, IsChosenByManyThreads) {
  std::vector<std::future<void>> ranks;
  for (int rank = 0; rank < 4; rank++)
    ranks.push_back(std::async(std::launch::async, [rank] {
      for (int i = 0; i < 500; i++)
        Proxy::next(2, "/a/device/that/is/not/there/" + std::string(30, 'a' + (rank + i) % 4));
    }));
  for (std::future<void>& rank : ranks) rank.get();
}

}  // namespace
}  // namespace weft
