// Observers of streams and proxies, in situations that no communicator between hosts causes
// reliably: operations that share network messages, graphs, failed launches, sleeping threads.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "src/comm/profiler/profiler.h"
#include "src/transport/net_stream.h"
#include "src/transport/proxy.h"

namespace weft {
namespace {

// Writes down the calls it gets: "+n" starts event n (its parent in brackets), "-n" stops it.
class Notebook final : public ProfilerPlugin {
 public:
  explicit Notebook(int kinds) : kinds_(kinds) {}
  int version() const override { return 5; }
  const char* name() const override { return "notebook"; }
  // Like some plugins, it asks for events only for the first communicator.
  ncclResult_t open(void**, int* mask, const ProfiledComm&) const override {
    if (!std::exchange(opened_, true)) *mask = kinds_;
    return ncclSuccess;
  }
  void* start(void*, const ProfiledComm&, const ProfilerEvent& event) const override {
    const size_t id = ++events_;
    text_ += (event.kind == profiler_abi::kProxyOp ? " op+" : " step+") + std::to_string(id) + "(" +
             std::to_string(reinterpret_cast<size_t>(event.parent)) + ")";
    return reinterpret_cast<void*>(id);
  }
  void stop(void* event) const override {
    text_ += " -" + std::to_string(reinterpret_cast<size_t>(event));
  }
  void record(void* event, profiler_abi::State state,
              const OperationProgress& progress) const override {
    if (state == profiler_abi::kStepSendWait || state == profiler_abi::kStepRecvGpuWait)
      text_ += " " + std::to_string(reinterpret_cast<size_t>(event)) + ":" +
               std::to_string(progress.bytes);
  }
  void close(void*) const override {}
  // The text since the last read().
  std::string read() const { return std::exchange(text_, ""); }

 private:
  const int kinds_;
  mutable bool opened_ = false;
  mutable size_t events_ = 100;
  mutable std::string text_;
};

void* event(size_t id) { return reinterpret_cast<void*>(id); }

struct Watched {
  explicit Watched(bool sends, int kinds = profiler_abi::kProxyStep)
      : notebook(kinds),
        profiler(Profiler::open(notebook, {}, mask)),
        events(std::make_unique<StreamEvents>(*profiler, 1, 0, sends)) {}
  const Notebook notebook;
  int mask = 0;
  const std::unique_ptr<Profiler> profiler;
  std::unique_ptr<StreamEvents> events;
};

TEST(Profiler, AsksForTheSameOfAllCommunicators) {
  Watched first(true);
  const auto second = Profiler::open(first.notebook, {}, first.mask);
  EXPECT_TRUE(second->asks(profiler_abi::kProxyStep));
  EXPECT_FALSE(second->asks(profiler_abi::kProxyCtrl));
}

TEST(StreamEvents, DivideAMessageOfTheNetworkAmongItsOperations) {
  const Watched out(true);
  out.events->expect(event(1), 2, 50);
  EXPECT_EQ(out.notebook.read(), " op+101(1) step+102(101)");
  out.events->expect(event(2), 1, 7);
  EXPECT_EQ(out.notebook.read(), " op+103(2)");
  out.events->sent(std::vector<CarriedMessage>{{0, 50}});
  EXPECT_EQ(out.notebook.read(), " 102:50 step+104(101)");
  out.events->sent(std::vector<CarriedMessage>{{0, 20}, {1, 7}});
  EXPECT_EQ(out.notebook.read(), " 104:20 step+105(103) 105:7");
  out.events->landed();
  EXPECT_EQ(out.notebook.read(), " -102");
  out.events->landed();
  EXPECT_EQ(out.notebook.read(), " -104 -101 -105 -103");
}

TEST(StreamEvents, KeepWhatComesBeforeItsCall) {
  const Watched in(false);
  in.events->received(std::vector<CarriedMessage>{{0, 5}, {0, 6}, {1, 7}});
  EXPECT_EQ(in.notebook.read(), "");
  in.events->expect(event(1), 2, 6);
  EXPECT_EQ(in.notebook.read(), " op+101(1) step+102(101)");  // others may begin too
  in.events->take_early();
  EXPECT_EQ(in.notebook.read(), " 102:11 -102 -101");
  in.events->expect(event(2), 3, 8);
  EXPECT_EQ(in.notebook.read(), " op+103(2) step+104(103)");
  in.events->received(std::vector<CarriedMessage>{{1, 8}});  // after the one that has arrived
  in.events->take_early();
  EXPECT_EQ(in.notebook.read(), " 104:15 -104 step+105(103)");
  in.events->received(std::vector<CarriedMessage>{{1, 8}});
  EXPECT_EQ(in.notebook.read(), " 105:8 -105 -103");
}

TEST(StreamEvents, HaveNoParentsOnceGraphsMayRun) {
  for (const bool sends : {true, false}) {
    const Watched watched(sends);
    StreamEvents& events = *watched.events;
    events.expect(event(1), 1, 4);
    events.expect_no_more();
    events.expect(event(2), 1, 4);  // a call beside the graph: their order is unknown
    watched.notebook.read();
    const std::vector<CarriedMessage> one{{0, 4}};
    const auto passes = [&] {
      sends ? events.sent(one) : events.received(one);
      if (sends) events.landed();
      return watched.notebook.read();
    };
    EXPECT_EQ(passes(), " 102:4 -102 -101");  // this one was launched before
    EXPECT_EQ(passes(), " op+103(0) step+104(103) 104:4 -104 -103");
    EXPECT_EQ(passes(), " op+105(0) step+106(105) 106:4 -106 -105");
  }
}

TEST(StreamEvents, EndWithALaunchThatFailsAndWithTheStream) {
  Watched out(true);
  out.events->expect(event(1), 1, 4);
  out.events->expect(event(2), 1, 4);
  out.notebook.read();
  out.events->take_back();
  EXPECT_EQ(out.notebook.read(), " -103");
  out.events->sent(std::vector<CarriedMessage>{{0, 4}});
  out.events->expect(event(3), 1, 4);
  EXPECT_EQ(out.notebook.read(), " 102:4 op+104(3) step+105(104)");
  out.events = nullptr;
  EXPECT_EQ(out.notebook.read(), " -105 -102 -101 -104");
}

TEST(StreamEvents, CountWhatNobodyAsksFor) {
  const Watched out(true, profiler_abi::kProxyCtrl);
  out.events->expect(event(1), 1, 4);
  out.events->sent(std::vector<CarriedMessage>{{0, 4}});
  out.events->landed();
  EXPECT_EQ(out.notebook.read(), "");
}

// Has work whenever the test sets it.
class Stream final : public NetStream {
 public:
  explicit Stream(Proxy& proxy, Doorbell& door)
      : NetStream({}, proxy, Mapping::anonymous(4096), door, nullptr) {}
  bool progress(bool) noexcept override { return work.exchange(0) != 0; }
  std::atomic<int> work{0};

 protected:
  bool idle() const override { return true; }
  bool asks_kernel() const override { return false; }
};

class States final : public ProxyObserver {
 public:
  void turned(ProxyState, ProxyState to) noexcept override {
    const std::lock_guard lock(mutex_);
    seen_.push_back(to);
  }
  bool wait_for(const std::vector<ProxyState>& states) {
    for (int tries = 0; tries < 2000; tries++) {
      {
        const std::lock_guard lock(mutex_);
        if (seen_ == states) return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

 private:
  std::mutex mutex_;
  std::vector<ProxyState> seen_;
};

TEST(ProxyObserver, SeesTheThreadSleepAndWork) {
  using enum ProxyState;
  for (const bool stays : {false, true}) {                // GPUs ask for polling
    Proxy& proxy = *std::make_unique<Proxy>().release();  // its thread never ends
    Doorbell door;
    const auto stream = std::make_shared<Stream>(proxy, door);
    proxy.add(stream);
    proxy.keep_polling(stays);
    States states;
    proxy.observe(states);
    EXPECT_TRUE(states.wait_for({kAsleep}));
    stream->work = 1;
    proxy.wake();
    EXPECT_TRUE(states.wait_for({kAsleep, kActive, kIdle, kAsleep}));
    proxy.forget(states);
    stream->work = 1;
    proxy.wake();
    proxy.remove(stream, 0);
    EXPECT_TRUE(states.wait_for({kAsleep, kActive, kIdle, kAsleep}));
    proxy.keep_polling(false);
  }
}

}  // namespace
}  // namespace weft
