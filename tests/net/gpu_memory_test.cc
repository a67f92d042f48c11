// Large messages between memory of GPUs, over a plugin that withholds them until a flush. Host
// memory stands for a GPU's.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <optional>

#include "src/comm/nic_distance.h"
#include "src/transport/plugin_network.h"
#include "tests/support/sampling.h"
#include "tests/transport/lane_ends.h"
#include "tests/transport/loopback_network.h"

namespace weft::test {
namespace {

std::shared_ptr<Network> withholding_network() {
  const std::shared_ptr<void> library(
      dlopen(WEFT_TEST_PLUGINS "/libnccl-net-tiny11.so", RTLD_NOW | RTLD_LOCAL), dlclose);
  return find_table(library).open(1, net_abi::kUndefined);
}

struct Ends {
  bool sender, receiver;  // which have GPU memory
};

class GpuMemoryStreams {
 public:
  GpuMemoryStreams(Ends on_gpu, bool flushes) {
    if (on_gpu.sender) from_.give_gpu();
    if (on_gpu.receiver) to_.give_gpu();
    std::pair<NetComm, NetComm> comms = connect_pair(withholding_network(), 1);  // the fast one
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

 private:
  TestArea from_, to_;
  std::optional<LanePair> pair_;
};

TEST(GpuMemory, OfEitherEndHasTheDataWhenItsWordComes) {
  for (const Ends on_gpu : {Ends{true, true}, Ends{true, false}, Ends{false, true}})
    EXPECT_EQ(GpuMemoryStreams(on_gpu, true).wrong_of(200), 0)
        << on_gpu.sender << " to " << on_gpu.receiver;
}

// So the tests above can fail.
TEST(GpuMemory, IsWrongIfTheFlushIsLeftOut) {
  EXPECT_GT(GpuMemoryStreams({true, true}, false).wrong_of(100), 0);
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
  for (const char* any : {"4", "5", "SYS"}) EXPECT_EQ(too_far({}, 0, "any", any), "");
}

}  // namespace
}  // namespace weft::test
