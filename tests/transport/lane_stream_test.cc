// Posts of a GPU, which a thread stands for here, reach the area of a rank on another host.
#include "src/transport/lane_stream.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
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
