// Buffers of the caller that streams register and forget.
#include "src/transport/nic_buffers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "tests/support/sampling.h"
#include "tests/transport/lane_ends.h"
#include "tests/transport/loopback_network.h"

namespace weft::test {
namespace {

using State = NicBuffers::State;

uint64_t address(const std::vector<std::byte>& memory, size_t offset = 0) {
  return reinterpret_cast<uint64_t>(memory.data()) + offset;
}

TEST(NicBuffers, AreReadyWhenAllStreamsHaveThem) {
  auto buffers = std::make_shared<NicBuffers>();
  auto [out, in] = connect_pair(loopback_network());
  NicRegistrations first(buffers, net_abi::kCudaPointer), second(buffers, net_abi::kCudaPointer);
  std::vector<std::byte> memory(1000);
  const int slot = buffers->put(memory.data(), memory.size(), {});
  ASSERT_GE(slot, 0);
  EXPECT_EQ(buffers->state(slot), State::kPending);
  first.catch_up(out);
  EXPECT_EQ(buffers->state(slot), State::kPending);
  second.catch_up(in);
  EXPECT_EQ(buffers->state(slot), State::kReady);
  EXPECT_EQ(first.find(address(memory, 10), 990).data, memory.data() + 10);
  EXPECT_EQ(first.find(address(memory, 10), 991).data, nullptr) << "it ends before";
  EXPECT_EQ(first.find(address(memory) - 1, 1).data, nullptr);
  EXPECT_EQ(first.find(address(memory, 1000), ~uint64_t{0}).data, nullptr);
  buffers->take_out(slot);
  first.catch_up(out);
  EXPECT_EQ(first.find(address(memory), 1).data, nullptr);
  EXPECT_NE(second.find(address(memory), 1).data, nullptr) << "it has not looked yet";
  std::vector<std::byte> other(500);
  EXPECT_NE(buffers->put(other.data(), other.size(), {}), slot) << "a stream still uses it";
  second.catch_up(in);
  EXPECT_EQ(second.find(address(memory), 1).data, nullptr);
  EXPECT_EQ(buffers->put(memory.data(), memory.size(), {}), slot);
}

// A network that takes no memory of GPUs.
TEST(NicBuffers, AreRefusedIfOneStreamCannotHaveThem) {
  auto buffers = std::make_shared<NicBuffers>();
  auto [out, in] = connect_pair(loopback_network());
  NicRegistrations good(buffers, net_abi::kCudaPointer), bad(buffers, net_abi::kDmaBuf);
  std::vector<std::byte> memory(1000);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const Fd end(pipe_ends[1]);
  const int slot = buffers->put(memory.data(), memory.size(), Fd(pipe_ends[0]));
  good.catch_up(out);
  bad.catch_up(in);  // sockets take no descriptors
  EXPECT_EQ(buffers->state(slot), State::kRefused);
  EXPECT_EQ(bad.find(address(memory), 1).data, nullptr);
}

TEST(NicBuffers, HaveNoRoomForMoreThanTheirSlots) {
  NicBuffers buffers;
  std::vector<std::byte> memory(NicBuffers::kSlots + 1);
  for (size_t i = 0; i < NicBuffers::kSlots; i++)
    ASSERT_EQ(buffers.put(&memory[i], 1, {}), static_cast<int>(i));
  EXPECT_EQ(buffers.put(&memory[NicBuffers::kSlots], 1, {}), -1);
}

// Data goes from buffer to buffer, while other buffers come and go.
TEST(NicBuffers, AreWhereDataComesFromAndGoes) {
  TestArea from, to;
  from.give_gpu();
  to.give_gpu();
  LaneArea sends = from.area(), receives = to.area();
  for (LaneArea* area : {&sends, &receives}) {
    area->gpu.buffers = std::make_shared<NicBuffers>();
    area->gpu.pointers = net_abi::kCudaPointer;
  }
  LanePair pair(connect_pair(loopback_network()), sends, receives);
  Poster poster(pair.posts());
  Random random(mix(test_seed(), 81));
  for (uint32_t n = 1; n <= 60; n++) {
    const auto bytes = static_cast<uint32_t>(1 + random.below(300000));
    std::vector<std::byte> source(bytes + 100), target(bytes + 50);
    for (uint32_t i = 0; i < bytes; i++) source[i + 100] = static_cast<std::byte>(i * 5 + n);
    const int slots[] = {sends.gpu.buffers->put(source.data(), source.size(), {}),
                         receives.gpu.buffers->put(target.data(), target.size(), {})};
    while (sends.gpu.buffers->state(slots[0]) != State::kReady ||
           receives.gpu.buffers->state(slots[1]) != State::kReady)
      std::this_thread::yield();
    LanePost post = numbered_post(n, bytes, 0);
    post.kind |= LanePost::kLarge | LanePost::kFromPlace | LanePost::kToPlace;
    post.from = address(source, 100);
    post.to = address(target, 50);
    poster.post(post);
    ASSERT_TRUE(to.gets(n % 16, uint64_t{3} << 32 | n)) << n;
    ASSERT_EQ(std::memcmp(source.data() + 100, target.data() + 50, bytes), 0) << n;
    ASSERT_TRUE(from.has_sent(n));
    sends.gpu.buffers->take_out(slots[0]);
    receives.gpu.buffers->take_out(slots[1]);
  }
  EXPECT_EQ(sends.gpu.buffers->sent, 60u);
  EXPECT_EQ(receives.gpu.buffers->received, 60u);
}

// A peer cannot name other memory of this process.
TEST(NicBuffers, AreTheOnlyMemoryThatPeersReach) {
  TestArea from, to;
  from.give_gpu();
  to.give_gpu();
  LaneArea receives = to.area();
  receives.gpu.buffers = std::make_shared<NicBuffers>();
  std::vector<std::byte> other(100000);
  LanePair pair(connect_pair(loopback_network()), from.area(), receives);
  LanePost post = numbered_post(1, 100000, TestArea::kWords);
  post.kind |= LanePost::kLarge | LanePost::kToPlace;
  post.to = address(other);
  Poster(pair.posts()).post(post);
  for (int tries = 0; tries < 5000 && !pair.broken(); tries++)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(pair.broken());
}

}  // namespace
}  // namespace weft::test
