// Large messages between memory of GPUs, over plugins of all versions that withhold them until a
// flush. Host memory stands for a GPU's.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "src/comm/nic_distance.h"
#include "src/transport/plugin_network.h"
#include "tests/support/sampling.h"
#include "tests/transport/lane_ends.h"
#include "tests/transport/loopback_network.h"

namespace weft::test {
namespace {

constexpr int kFast = 1;  // device

std::shared_ptr<Network> withholding_network(int version) {
  const std::string file = WEFT_TEST_PLUGINS "/libnccl-net-tiny" + std::to_string(version) + ".so";
  const std::shared_ptr<void> library(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL), dlclose);
  const NetTable table = find_table(library);
  EXPECT_EQ(table.version, version);
  return table.open(1, net_abi::kUndefined);
}

struct Ends {
  bool sender, receiver;  // which have GPU memory
};

class GpuMemoryStreams {
 public:
  GpuMemoryStreams(int version, Ends on_gpu, bool flushes) {
    if (on_gpu.sender) from_.give_gpu();
    if (on_gpu.receiver) to_.give_gpu();
    std::pair<NetComm, NetComm> comms = connect_pair(withholding_network(version), kFast);
    const auto registered = [&](TestArea& end, NetComm& comm) {
      LaneArea area = end.area();
      area.gpu.needs_flush = flushes;
      if (!end.gpu.empty())
        area.gpu.registration = comm.reg_gpu(end.gpu.data(), end.gpu.size(), -1,
                                             net_abi::kHostPointer | net_abi::kCudaPointer);
      return area;
    };
    const LaneArea sends = registered(from_, comms.first), receives = registered(to_, comms.second);
    pair_.emplace(std::move(comms), sends, receives);
  }

  // Posts messages of any size, large and small calls in turn. Returns how many were wrong when
  // their word came, or -1 if one did not come.
  int wrong_of(uint32_t messages) {
    Poster poster(pair_->posts());
    Random random(mix(test_seed(), 6));
    int wrong = 0;
    uint64_t with_data = 0;
    for (uint32_t n = 1; n <= messages; n++) {
      const bool large = n % 3 != 0;
      const auto bytes = static_cast<uint32_t>(random.below(large ? 400000 : 9000) + 1);
      const auto at = static_cast<uint32_t>(
          TestArea::kWords + random.below(TestArea::kBytes - TestArea::kWords - bytes + 1));
      std::byte* from = from_.data(at, large);
      for (uint32_t i = 0; i < bytes; i++) from[i] = static_cast<std::byte>(i * 7 + n);
      LanePost post = numbered_post(n, bytes, at);
      if (large) post.kind |= LanePost::kLarge;
      poster.post(post);
      // Nothing of a message without data overtakes the data before it.
      post.bytes = 0;
      post.value = n + (1u << 20);
      poster.post(post);
      if (!to_.gets(n % 16, uint64_t{3} << 32 | post.value)) return -1;
      wrong += std::memcmp(to_.data(at, large), from, bytes) == 0 ? 0 : 1;
      if (!from_.has_sent(++with_data)) return -1;
    }
    return wrong;
  }

  // Posts large messages and leaves. Returns how many came, and as they were.
  uint32_t right_of_parting(uint32_t messages) {
    Poster poster(pair_->posts());
    constexpr uint32_t kEach = 200000;
    const auto place = [](uint32_t n) {
      return static_cast<uint32_t>(TestArea::kWords) + n * kEach;
    };
    for (uint32_t n = 0; n < messages; n++) {
      std::byte* from = from_.data(place(n), true);
      for (uint32_t i = 0; i < kEach; i++) from[i] = static_cast<std::byte>(i * 7 + n);
      LanePost post = numbered_post(n, kEach, place(n));
      post.value = n + 1;
      post.kind |= LanePost::kLarge;
      poster.post(post);
    }
    pair_->sender_leaves();
    uint32_t right = 0;
    for (uint32_t n = 0; n < messages && to_.gets(n % 16, uint64_t{3} << 32 | (n + 1)); n++)
      right +=
          std::memcmp(to_.data(place(n), true), from_.data(place(n), true), kEach) == 0 ? 1 : 0;
    for (int tries = 0; tries < 5000 && !pair_->broken(); tries++)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(pair_->broken()) << "the end of the connection is not noticed";
    return right;
  }

 private:
  TestArea from_, to_;
  std::optional<LanePair> pair_;
};

class EveryPluginVersion : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Gpu, EveryPluginVersion, testing::Values(8, 9, 10, 11, 12),
                         [](const auto& tested) { return "v" + std::to_string(tested.param); });

TEST_P(EveryPluginVersion, HasTheDataInGpuMemoryOfEitherEndWhenItsWordComes) {
  for (const Ends on_gpu : {Ends{true, true}, Ends{true, false}, Ends{false, true}})
    EXPECT_EQ(GpuMemoryStreams(GetParam(), on_gpu, true).wrong_of(100), 0)
        << on_gpu.sender << " to " << on_gpu.receiver;
}

TEST_P(EveryPluginVersion, HasAllThatWasSentBeforeThePeerLeft) {
  for (int i = 0; i < 10; i++)
    ASSERT_EQ(GpuMemoryStreams(GetParam(), {true, true}, true).right_of_parting(9), 9u);
}

// So the tests above can fail.
TEST(GpuMemory, IsWrongIfTheFlushIsLeftOut) {
  EXPECT_GT(GpuMemoryStreams(11, {true, true}, false).wrong_of(100), 0);
}

// Memory with a descriptor. What is read and written through the descriptor is there.
class DescribedMemory {
 public:
  explicit DescribedMemory(size_t bytes)
      : bytes_(bytes), file_(memfd_create("weft-test", MFD_CLOEXEC)) {
    if (ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) ADD_FAILURE() << "no memory";
    data_ = static_cast<std::byte*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0));
  }
  ~DescribedMemory() { munmap(data_, bytes_); }
  DescribedMemory(const DescribedMemory&) = delete;
  DescribedMemory& operator=(const DescribedMemory&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  int descriptor() const { return file_.get(); }
  Fd copy() const { return Fd(dup(file_.get())); }

 private:
  const size_t bytes_;
  const Fd file_;
  std::byte* data_ = nullptr;
};

// The memory begins in the middle of what the descriptor is for.
TEST_P(EveryPluginVersion, IsToldWhereADescriptorsMemoryBegins) {
  constexpr size_t kSkipped = 65536, kBytes = 300000;
  const auto network = withholding_network(GetParam());
  auto [sender, receiver] = connect_pair(network, kFast);
  const DescribedMemory from(kSkipped + kBytes), to(2 * kSkipped + kBytes);
  for (size_t i = 0; i < kBytes; i++) from.data()[kSkipped + i] = static_cast<std::byte>(i * 7);
  void *source = nullptr, *target = nullptr;
  ASSERT_EQ(network->reg_dma_buf(sender.get(), from.data() + kSkipped, kBytes, kSkipped,
                                 from.descriptor(), &source),
            ncclSuccess);
  ASSERT_EQ(network->reg_dma_buf(receiver.get(), to.data() + 2 * kSkipped, kBytes, 2 * kSkipped,
                                 to.descriptor(), &target),
            ncclSuccess);
  void *unused = nullptr, *sends = nullptr, *receives = nullptr, *flush = nullptr;
  EXPECT_NE(network->reg_dma_buf(sender.get(), from.data(), kBytes + 1, kSkipped, from.descriptor(),
                                 &unused),
            ncclSuccess)
      << "the plugin checks";
  bool sent = false, received = false, flushed = false;
  size_t size = 0;
  for (int tries = 0; !(sent && flushed) && tries < 100000; tries++) {
    if (sends == nullptr)
      network->isend(sender.get(), from.data() + kSkipped, kBytes, source, &sends);
    if (receives == nullptr)
      network->irecv(receiver.get(), to.data() + 2 * kSkipped, kBytes, target, &receives);
    if (sends != nullptr && !sent) {
      ASSERT_EQ(network->test(sends, sent, size), ncclSuccess);
    }
    if (receives != nullptr && !received) {
      ASSERT_EQ(network->test(receives, received, size), ncclSuccess);
    }
    if (received && flush == nullptr) {
      ASSERT_EQ(network->flush(receiver.get(), to.data() + 2 * kSkipped, kBytes, target, &flush),
                ncclSuccess);
    }
    if (flush != nullptr && !flushed) {
      ASSERT_EQ(network->test(flush, flushed, size), ncclSuccess);
    }
  }
  ASSERT_TRUE(sent && flushed);
  EXPECT_EQ(std::memcmp(to.data() + 2 * kSkipped, from.data() + kSkipped, kBytes), 0);
  EXPECT_EQ(network->dereg(sender.get(), source), ncclSuccess);
  EXPECT_EQ(network->dereg(receiver.get(), target), ncclSuccess);
}

// Buffers of the caller that have descriptors, for NICs that take nothing else.
TEST_P(EveryPluginVersion, TakesBuffersByTheirDescriptors) {
  TestArea from, to;
  from.give_gpu();
  to.give_gpu();
  auto comms = connect_pair(withholding_network(GetParam()), kFast);
  const auto with_buffers = [](TestArea& end, NetComm& comm) {
    LaneArea area = end.area();
    area.gpu.registration = comm.reg(end.gpu.data(), end.gpu.size(), net_abi::kCudaPointer);
    area.gpu.buffers = std::make_shared<NicBuffers>();
    area.gpu.pointers = net_abi::kDmaBuf;
    area.gpu.needs_flush = true;
    return area;
  };
  const LaneArea sends = with_buffers(from, comms.first);
  const LaneArea receives = with_buffers(to, comms.second);
  const LanePair pair(std::move(comms), sends, receives);
  Poster poster(pair.posts());
  for (uint32_t n = 1; n <= 8; n++) {
    const uint32_t bytes = n * 50000;
    const DescribedMemory source(bytes + 100), target(bytes + 50);
    for (uint32_t i = 0; i < bytes; i++) source.data()[i + 100] = static_cast<std::byte>(i * 5 + n);
    const int slots[] = {sends.gpu.buffers->put(source.data(), source.size(), source.copy()),
                         receives.gpu.buffers->put(target.data(), target.size(), target.copy())};
    const auto answered = [&](const LaneArea& area, int slot) {
      while (area.gpu.buffers->state(slot) == NicBuffers::State::kPending)
        std::this_thread::yield();
      return area.gpu.buffers->state(slot);
    };
    ASSERT_EQ(answered(sends, slots[0]), NicBuffers::State::kReady);
    ASSERT_EQ(answered(receives, slots[1]), NicBuffers::State::kReady);
    LanePost post = numbered_post(n, bytes, 0);
    post.kind |= LanePost::kLarge | LanePost::kFromPlace | LanePost::kToPlace;
    post.from = reinterpret_cast<uint64_t>(source.data() + 100);
    post.to = reinterpret_cast<uint64_t>(target.data() + 50);
    poster.post(post);
    ASSERT_TRUE(to.gets(n % 16, uint64_t{3} << 32 | n)) << n;
    EXPECT_EQ(std::memcmp(source.data() + 100, target.data() + 50, bytes), 0) << n;
    ASSERT_TRUE(from.has_sent(n));
    sends.gpu.buffers->take_out(slots[0]);
    receives.gpu.buffers->take_out(slots[1]);
  }
  EXPECT_EQ(sends.gpu.buffers->sent, 8u);
  EXPECT_EQ(receives.gpu.buffers->received, 8u);
}

TEST(GpuMemory, IsForNicsThatAreNear) {
  NicPlan plan;
  plan.of_rank = {{"near"}, {"far", "far2"}};
  plan.distance = {PathClass::kPcieSwitch, PathClass::kHostBridge};
  EXPECT_EQ(too_far(plan, 0, "near", ""), "");
  EXPECT_EQ(too_far(plan, 0, "near", "PIX"), "");
  EXPECT_NE(too_far(plan, 0, "near", "LOC"), "");
  EXPECT_NE(too_far(plan, 1, "far2", "").find("host bridge"), std::string::npos)
      << too_far(plan, 1, "far2", "");
  EXPECT_EQ(too_far(plan, 1, "far2", "phb"), "");
  EXPECT_NE(too_far(plan, 0, "another", "PHB"), "") << "nothing is known of it";
  EXPECT_NE(too_far(plan, 7, "near", ""), "");
  EXPECT_EQ(too_far(plan, 0, "near:1", ""), "") << "a plugin that names the port";
  EXPECT_NE(too_far(plan, 0, "near:2", ""), "");
  for (const char* any : {"4", "5", "SYS"}) EXPECT_EQ(too_far({}, 0, "any", any), "");
}

TEST(GpuMemory, IsForRanksAloneOnTheirHostsIfAllNicsMayHaveIt) {
  NicPlan plan;
  plan.of_rank = {{"near", "near2"}, {"far"}};
  plan.distance = {PathClass::kPcieSwitch, PathClass::kHostBridge};
  const auto why = [&](const std::vector<GpuNic>& devices, int rank, const char* level = "") {
    return why_not_gpu_memory(devices, plan, rank, level);
  };
  const GpuNic near = {"near:1", true}, near2 = {"near2", true}, ethernet = {"eth0", false};
  EXPECT_EQ(why({near, near2, ethernet}, 0), "") << "the plan does not name eth0";
  EXPECT_EQ(why({near}, 0), "") << "the network has no near2: the other serves";
  EXPECT_EQ(why({near, {"near2", false}}, 0), "near2 takes no memory of GPUs");
  EXPECT_EQ(why({ethernet}, 0), "eth0 takes no memory of GPUs");
  EXPECT_NE(why({}, 0), "");
  EXPECT_NE(why({{"far", true}}, 1), "");
  EXPECT_EQ(why({{"far", true}}, 1, "PHB"), "");
  EXPECT_NE(why({{"unknown", true}}, 0), "");
  EXPECT_EQ(why({{"unknown", true}}, 0, "SYS"), "");
}

TEST(GpuMemory, IsTakenByAddressOrByDescriptor) {
  EXPECT_FALSE(takes_gpu_memory(net_abi::kHostPointer));
  EXPECT_TRUE(takes_gpu_memory(net_abi::kHostPointer | net_abi::kCudaPointer, false));
  EXPECT_TRUE(takes_gpu_memory(net_abi::kHostPointer | net_abi::kDmaBuf));
  EXPECT_FALSE(takes_gpu_memory(net_abi::kHostPointer | net_abi::kDmaBuf, false))
      << "NCCL_DMABUF_ENABLE=0";
}

}  // namespace
}  // namespace weft::test
