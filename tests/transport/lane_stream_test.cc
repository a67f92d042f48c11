// Posts of a GPU, which a thread stands for here, reach the area of a rank on another host.
#include "src/transport/lane_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "plugins/net_socket/plugin.h"
#include "src/transport/plugin_network.h"
#include "tests/support/sampling.h"
#include "tests/transport/lane_ends.h"
#include "tests/transport/loopback_network.h"

namespace weft::test {
namespace {

constexpr size_t kWords = TestArea::kWords, kAreaBytes = TestArea::kBytes;

// With a network that sends a frame and its data at once, and with one that cannot.
class LaneStreams : public testing::TestWithParam<bool> {
 protected:
  bool comes(size_t word, uint64_t value) { return to_.gets(word, value); }
  bool is_sent(uint64_t messages) { return from_.has_sent(messages); }

  TestArea from_, to_;
  LanePair pair_{connect_pair(loopback_network(GetParam())), from_.area(), to_.area()};
};

// Data of any size is there when its word is, and the sender learns that it may use its room again.
TEST_P(LaneStreams, BringDataBeforeItsWord) {
  Poster poster(pair_.posts());
  Random random(mix(test_seed(), 5));
  uint64_t with_data = 0;
  for (uint32_t n = 1; n <= 400; n++) {
    const uint32_t largest[] = {0, 40, 8192, 8193, 30000, 400000};
    const auto bytes = static_cast<uint32_t>(random.below(largest[random.below(6)] + 1));
    const auto at = static_cast<uint32_t>(kWords + random.below(kAreaBytes - kWords - bytes + 1));
    for (uint32_t i = 0; i < bytes; i++) from_.begin()[at + i] = static_cast<std::byte>(i * 7 + n);
    LanePost post = numbered_post(n, bytes, at);
    with_data += bytes > 0 ? 1 : 0;
    poster.post(post);
    // Several are under way at once, but not with the same memory.
    if (bytes == 0) continue;
    ASSERT_TRUE(comes(n % 16, uint64_t{3} << 32 | n)) << n;
    for (uint32_t i = 0; i < bytes; i++)
      ASSERT_EQ(to_.begin()[at + i], static_cast<std::byte>(i * 7 + n)) << n << ' ' << i;
    ASSERT_TRUE(is_sent(with_data)) << n;  // before the next message may use its room
  }
}

TEST_P(LaneStreams, KeepTheOrderOfManyPosts) {
  Poster poster(pair_.posts());
  for (uint32_t n = 1; n <= 5 * kLanePosts; n++) {
    LanePost post;
    post.word = 64;
    post.value = n;
    post.bytes = n % 7 == 0 ? 20000 : n % 3 * 100;
    post.from = post.to = kWords + (n % 64) * 32768;
    poster.post(post);
  }
  EXPECT_TRUE(comes(8, 5 * kLanePosts));
}

TEST_P(LaneStreams, WriteGrantsAsPackets) {
  LanePost post;
  post.kind = LanePost::kGrant;
  post.word = 32;
  post.call = 9;
  post.value = 5;
  post.to = 0x1234567890abcdef;
  Poster(pair_.posts()).post(post);
  EXPECT_TRUE(comes(4, uint64_t{9} << 32 | 0x90abcdefu));
  EXPECT_TRUE(comes(5, uint64_t{9 ^ 5} << 32 | 0x12345678u));
}

LanePost post_of_packets(uint32_t call, uint32_t count) {
  LanePost post;
  post.kind = LanePost::kPackets;
  post.call = call;
  post.value = 5;
  post.bytes = count * 8;
  post.to = 1024;
  post.from = kWords + 512;
  return post;
}

// They are posted before they are there, and sent when all of them are.
TEST_P(LaneStreams, CarryPacketsThatComeLater) {
  constexpr uint32_t kCount = 190;  // as many as words have room for
  Poster poster(pair_.posts());
  for (uint32_t call = 1; call <= 20; call++) {
    const LanePost post = post_of_packets(call, kCount);
    poster.post(post);
    poster.post(numbered_post(call, 0, 0));
    auto* packets = reinterpret_cast<PostedWords*>(from_.begin() + post.from);
    for (uint32_t turn = 0; turn < 2; turn++) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_NE(to_.word(1024 / 8), uint64_t{call} << 32 | (call * 1000))
          << "half of them are here";
      for (uint32_t i = turn; i < kCount; i += 2) {  // the last half comes last
        __atomic_store_n(&packets[i].data0, call * 1000 + i, __ATOMIC_RELAXED);
        __atomic_store_n(&packets[i].data1, call * 2000 + i, __ATOMIC_RELAXED);
        __atomic_store_n(&packets[i].flag0, call, __ATOMIC_RELEASE);
        __atomic_store_n(&packets[i].flag1, call ^ 5, __ATOMIC_RELEASE);
      }
    }
    ASSERT_TRUE(comes(call % 16, uint64_t{3} << 32 | call));
    for (uint32_t i = 0; i < kCount; i++) {
      ASSERT_EQ(to_.word(128 + 2 * i), uint64_t{call} << 32 | (call * 1000 + i)) << i;
      ASSERT_EQ(to_.word(129 + 2 * i), uint64_t{call ^ 5} << 32 | (call * 2000 + i)) << i;
    }
    ASSERT_TRUE(is_sent(call));
  }
}

TEST_P(LaneStreams, RefusePacketsThatDoNotEndAmongTheWords) {
  LanePost post = post_of_packets(1, 193);  // one too many
  auto* packets = reinterpret_cast<PostedWords*>(from_.begin() + post.from);
  for (uint32_t i = 0; i < 193; i++) packets[i] = {0, 1, 0, 1 ^ 5};
  Poster(pair_.posts()).post(post);
  for (int tries = 0; tries < 5000 && !pair_.broken(); tries++)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(pair_.broken());
}

// A peer writes nowhere else.
TEST_P(LaneStreams, RefuseWhatLiesOutsideTheArea) {
  LanePost post;
  post.word = kWords;
  Poster(pair_.posts()).post(post);
  for (int tries = 0; tries < 5000 && !pair_.broken(); tries++)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(pair_.broken());
}

// A kernel waits until its data has been sent. Over a connection that has ended it never is.
TEST_P(LaneStreams, LetNobodyWaitForAConnectionThatHasEnded) {
  Poster poster(pair_.posts());
  LanePost wrong;
  wrong.word = kWords;
  poster.post(wrong);  // the receiver ends the connection
  for (uint32_t n = 1; n <= 3 * kLanePosts; n++)
    poster.post(numbered_post(n, n % 2 == 0 ? 30000 : 100, kWords + n % 64 * 32768));
  EXPECT_TRUE(is_sent(3 * kLanePosts));
}

// A network like a NIC's, over another one: a receive completes only when nothing else is missing
// that `invited` says, and a flush takes its time. It counts what is under way.
class InvitingNetwork final : public Network {
 public:
  InvitingNetwork(std::shared_ptr<Network> inner, size_t invited)
      : inner_(std::move(inner)), invited_(invited) {}
  size_t sends() const { return sends_; }
  size_t most_receives() const { return most_receives_.load(); }
  size_t most_flushes() const { return most_flushes_.load(); }

  const std::string& name() const override { return inner_->name(); }
  int version() const override { return inner_->version(); }
  int devices() const override { return inner_->devices(); }
  NetProperties properties(int device) override { return inner_->properties(device); }
  int merge(const std::vector<int>& all) noexcept override { return inner_->merge(all); }
  ncclResult_t listen(int d, NetHandle& handle, void** comm) noexcept override {
    return inner_->listen(d, handle, comm);
  }
  ncclResult_t connect(int d, NetHandle& handle, void** comm) noexcept override {
    return inner_->connect(d, handle, comm);
  }
  void cancel(NetHandle& handle) noexcept override { inner_->cancel(handle); }
  ncclResult_t accept(void* listener, void** comm) noexcept override {
    return inner_->accept(listener, comm);
  }
  ncclResult_t close_send(void* comm) noexcept override { return inner_->close_send(comm); }
  ncclResult_t close_receive(void* comm) noexcept override { return inner_->close_receive(comm); }
  ncclResult_t close_listen(void* comm) noexcept override { return inner_->close_listen(comm); }
  ncclResult_t reg(void* comm, void* data, size_t size, net_abi::PointerKind kind,
                   void** registration) noexcept override {
    return inner_->reg(comm, data, size, kind, registration);
  }
  ncclResult_t reg_dma_buf(void*, void*, size_t, uint64_t, int, void**) noexcept override {
    return ncclSystemError;
  }
  ncclResult_t dereg(void* comm, void* registration) noexcept override {
    return inner_->dereg(comm, registration);
  }
  ncclResult_t isend(void* comm, void* data, size_t size, void* registration,
                     void** request) noexcept override {
    sends_++;
    return inner_->isend(comm, data, size, registration, request);
  }
  ncclResult_t irecv(void* comm, void* data, size_t size, void* registration,
                     void** request) noexcept override {
    const ncclResult_t code = inner_->irecv(comm, data, size, registration, request);
    if (*request != nullptr && size == kLaneFrameBytes) frame_ = *request;
    if (*request != nullptr) receives_.insert(*request);
    most_receives_ = std::max(most_receives_.load(), receives_.size());
    return code;
  }
  ncclResult_t flush(void*, void*, int, void*, void** request) noexcept override {
    flushes_.push_back(0);
    most_flushes_ = std::max<size_t>(most_flushes_, flushes_.size());
    *request = &flushes_;
    return ncclSuccess;
  }
  ncclResult_t test(void* request, bool& done, size_t& size) noexcept override {
    done = false;
    if (request == &flushes_) {
      done = flushes_.front()++ > 300;
      if (done) flushes_.pop_front();
      return ncclSuccess;
    }
    const bool receives = receives_.count(request) > 0;
    if (receives && request != frame_ && most_receives_ < invited_) return ncclSuccess;
    const ncclResult_t code = inner_->test(request, done, size);
    if (done && receives) receives_.erase(request);
    return code;
  }
  bool can_lend() const override { return false; }
  bool can_sleep() const override { return false; }
  bool can_seal() const override { return false; }
  void use_secret(const Secret*, Wire) noexcept override {}
  ncclResult_t isend_two(void*, void*, size_t, void*, size_t, void**) noexcept override {
    return ncclInternalError;
  }
  int waits_for(void*, pollfd*, int) noexcept override { return 0; }
  double round_trip_us(void*) noexcept override { return 0; }
  std::string reason() const override { return inner_->reason(); }

 private:
  const std::shared_ptr<Network> inner_;
  const size_t invited_;
  std::set<void*> receives_;
  void* frame_ = nullptr;
  std::deque<int> flushes_;  // how often each was tested; requests are alike, and end in order
  std::atomic<size_t> most_receives_{0}, most_flushes_{0}, sends_{0};
};

// The test is the proxy of two streams that wait so long for data after a grant.
struct GrantingPair {
  explicit GrantingPair(std::chrono::microseconds waits)
      : out(std::move(comms.first), proxy, from.area(), door, &gone, kLaneInlineBytes, waits),
        in(std::move(comms.second), proxy, to.area(), door, nullptr) {}
  LanePost grant_of(uint32_t call) const {
    LanePost grant;
    grant.kind = LanePost::kGrant | LanePost::kWaits;
    grant.word = 32;
    grant.call = call;
    return grant;
  }
  void receive_until(size_t word, uint32_t call) {
    for (int tries = 0; tries < 20000 && to.word(word) >> 32 != call; tries++) {
      in.progress(true);
      out.progress(true);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    EXPECT_EQ(to.word(word) >> 32, call);
  }
  std::shared_ptr<InvitingNetwork> network =
      std::make_shared<InvitingNetwork>(loopback_network(false), 0);
  TestArea from, to;
  std::pair<NetComm, NetComm> comms = connect_pair(network);
  Doorbell door;
  Proxy& proxy = Proxy::next();
  std::atomic<bool> gone{false};
  LaneOut out;
  LaneIn in;
  Poster poster{out.posts()};
};

// A grant that may wait goes along with the data that follows. The stream says that it is busy
// meanwhile, so that its proxy does not sleep.
TEST(LaneGrants, WaitForDataToTheSameRank) {
  GrantingPair pair(std::chrono::seconds(60));
  EXPECT_FALSE(pair.out.progress(true)) << "nothing is to be sent";
  pair.poster.post(pair.grant_of(1));
  EXPECT_TRUE(pair.out.progress(true));
  EXPECT_EQ(pair.network->sends(), 0u);
  EXPECT_TRUE(pair.out.unsent());
  const LanePost post = post_of_packets(1, 1);
  pair.poster.post(post);
  EXPECT_TRUE(pair.out.progress(true));
  EXPECT_EQ(pair.network->sends(), 0u) << "its packet is not here";
  *reinterpret_cast<PostedWords*>(pair.from.begin() + post.from) = {1, 1, 2, 1 ^ 5};
  EXPECT_TRUE(pair.out.progress(true));
  EXPECT_EQ(pair.network->sends(), 1u) << "one message has both";
  pair.receive_until(4, 1);
  pair.receive_until(1024 / 8, 1);
  pair.poster.post(post_of_packets(2, 1));
  EXPECT_TRUE(pair.out.progress(true)) << "its packet comes soon";
  EXPECT_FALSE(pair.out.unsent()) << "a kernel that has ended writes no more packets";
}

// Its producer had sent the data before, and left.
TEST(LaneGrants, AreNotOwedToWhoHasLeft) {
  GrantingPair pair(std::chrono::seconds(60));
  pair.poster.post(pair.grant_of(1));
  pair.out.progress(true);
  EXPECT_TRUE(pair.out.unsent());
  pair.gone = true;
  EXPECT_FALSE(pair.out.unsent());
}

TEST(LaneGrants, DoNotWaitForever) {
  GrantingPair pair(std::chrono::milliseconds(1));
  pair.poster.post(pair.grant_of(1));
  pair.receive_until(4, 1);
  EXPECT_EQ(pair.network->sends(), 1u);
  pair.poster.post(post_of_packets(2, 1));
  bool busy = true;
  for (int tries = 0; tries < 5000 && busy; tries++) {
    busy = pair.out.progress(true);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(busy) << "its packet does not come";
}

// A peer that was not granted the call before waits for this one.
TEST(LaneGrants, GoAtOnceToWhoHasNone) {
  GrantingPair pair(std::chrono::seconds(60));
  pair.poster.post(pair.grant_of(7));
  pair.receive_until(4, 7);
  pair.poster.post(pair.grant_of(8));
  pair.out.progress(true);
  EXPECT_EQ(pair.network->sends(), 1u) << "it was granted call 7";
}

// Posts are there before the streams move, so that one frame has many.
void expect_many_at_once(bool flushes) {
  constexpr uint32_t kMessages = 20, kMessageBytes = 50000;
  // Eight messages, or no message arrives at all.
  const auto network = std::make_shared<InvitingNetwork>(loopback_network(false), 8);
  TestArea from, to;
  if (flushes) to.give_gpu();
  LaneArea receives = to.area();
  receives.gpu.needs_flush = flushes;
  auto comms = connect_pair(network);
  Doorbell door;
  Proxy& proxy = Proxy::next();
  const auto out =
      std::make_shared<LaneOut>(std::move(comms.first), proxy, from.area(), door, nullptr);
  const auto in = std::make_shared<LaneIn>(std::move(comms.second), proxy, receives, door, nullptr);
  Poster poster(out->posts());
  for (uint32_t n = 1; n <= kMessages; n++) {
    const uint32_t at = kWords + n * 65536;
    for (uint32_t i = 0; i < kMessageBytes; i++)
      from.begin()[at + i] = static_cast<std::byte>(i * 7 + n);
    LanePost post = numbered_post(n, kMessageBytes, at);
    post.word = 8;
    if (flushes) post.kind |= LanePost::kLarge;
    poster.post(post);
    post.bytes = 0;  // its word comes after the data before it
    post.word = 16;
    poster.post(post);
  }
  proxy.keep_polling(true);
  proxy.add(out);
  proxy.add(in);
  EXPECT_TRUE(to.gets(2, uint64_t{3} << 32 | kMessages));
  EXPECT_TRUE(to.gets(1, uint64_t{3} << 32 | kMessages));
  EXPECT_TRUE(from.has_sent(kMessages));
  proxy.remove(out, 1);
  proxy.remove(in, 0);
  proxy.keep_polling(false);
  for (uint32_t n = 1; n <= kMessages; n++) {
    const uint32_t at = kWords + n * 65536;
    EXPECT_EQ(std::memcmp(to.data(at, flushes), from.begin() + at, kMessageBytes), 0) << n;
  }
  EXPECT_EQ(network->most_receives(), 9u) << "eight messages, and the next frame";
  if (flushes) {
    EXPECT_GT(network->most_flushes(), 2u);
    EXPECT_LE(network->most_flushes(), 16u);
  }
}

TEST(LaneMessages, AreInvitedEightAtATime) { expect_many_at_once(false); }

TEST(LaneMessages, AreFlushedTogether) { expect_many_at_once(true); }

INSTANTIATE_TEST_SUITE_P(Over, LaneStreams, testing::Bool(), [](const auto& tested) {
  return tested.param ? "lending_network" : "plain_network";
});

// Whose area was freed when it was deregistered.
std::weak_ptr<void> area_owner;
int late_deregistrations = 0;

// Other memory may have the address by then, and a plugin may know it by its address.
TEST(LaneAreas, AreDeregisteredBeforeTheyAreFreed) {
  static const auto kWatched = [] {
    auto net = net_socket::kNetV12;
    net.dereg_mr = [](void*, void*) {
      late_deregistrations += area_owner.expired() ? 1 : 0;
      return ncclSuccess;
    };
    return net;
  }();
  const auto network =
      built_in_table(kWatched, net_socket::kExtension).open(1, net_abi::kUndefined);
  TestArea from, to;
  auto owner = std::make_shared<int>();
  area_owner = owner;
  const auto owned = [&](TestArea& area) {
    LaneArea with_owner = area.area();
    with_owner.owner = owner;
    return with_owner;
  };
  {
    const LanePair pair(connect_pair(network), owned(from), owned(to));
    owner.reset();
  }
  EXPECT_TRUE(area_owner.expired());
  EXPECT_EQ(late_deregistrations, 0);
}

}  // namespace
}  // namespace weft::test
