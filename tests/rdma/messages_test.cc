// The verbs plugin alone, called as NCCL calls it. Both ends are in one process.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "src/transport/plugin_network.h"
#include "tests/rdma/guest.h"
#include "tests/support/require.h"
#include "tests/support/sampling.h"
#include "tests/transport/lane_ends.h"

namespace weft::test {
namespace {

struct Ends {
  std::shared_ptr<Network> network;
  NetComm sender, receiver;
};

std::shared_ptr<Network> open_plugin(int version) {
  const std::shared_ptr<void> library(dlopen(WEFT_VERBS_PLUGIN, RTLD_NOW | RTLD_LOCAL),
                                      [](void*) {});
  if (library == nullptr) throw std::runtime_error(dlerror());
  return find_table(library, version).open(7, net_abi::kUndefined);
}

// Connects all devices of host a to all devices of host b, joined; or the first ones.
Ends connect_hosts(std::shared_ptr<Network> network, bool join = true) {
  Ends ends;
  ends.network = std::move(network);
  std::vector<int> a, b;
  for (int d = 0; d < ends.network->devices(); d++) {
    const std::string name = ends.network->properties(d).name;
    if (name.rfind("weft_a", 0) == 0) a.push_back(d);
    if (name.rfind("weft_b", 0) == 0) b.push_back(d);
  }
  const int from = join && a.size() > 1 ? ends.network->merge(a) : a.at(0);
  const int to = join && b.size() > 1 ? ends.network->merge(b) : b.at(0);
  NetHandle handle{};
  void *listening = nullptr, *sending = nullptr, *receiving = nullptr;
  if (ends.network->listen(to, handle, &listening) != ncclSuccess)
    throw std::runtime_error(ends.network->reason());
  const NetComm listener(ends.network, listening, NetComm::Kind::kListen);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (sending == nullptr || receiving == nullptr) {
    if ((sending == nullptr && ends.network->connect(from, handle, &sending) != ncclSuccess) ||
        (receiving == nullptr && ends.network->accept(listening, &receiving) != ncclSuccess))
      throw std::runtime_error(ends.network->reason());
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("no connection");
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  ends.sender = NetComm(ends.network, sending, NetComm::Kind::kSend);
  ends.receiver = NetComm(ends.network, receiving, NetComm::Kind::kReceive);
  return ends;
}

void expect_flush_works(Ends& ends, void* data, void* registration) {
  void* request = nullptr;
  ASSERT_EQ(ends.network->flush(ends.receiver.get(), data, 1, registration, &request), ncclSuccess)
      << ends.network->reason();
  ASSERT_NE(request, nullptr);
  bool done = false;
  size_t size = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done && std::chrono::steady_clock::now() < deadline)
    ASSERT_EQ(ends.network->test(request, done, size), ncclSuccess) << ends.network->reason();
  EXPECT_TRUE(done);
}

// A message longer than its receive buffer ends the connection with an error text.
void expect_too_long_is_an_error(Ends& ends, std::vector<uint8_t>& from, std::vector<uint8_t>& to) {
  Network& network = *ends.network;
  void *sending = nullptr, *receiving = nullptr;
  void* to_registration = ends.receiver.reg(to.data(), to.size());
  void* from_registration = ends.sender.reg(from.data(), from.size());
  ASSERT_EQ(network.irecv(ends.receiver.get(), to.data(), 10, to_registration, &receiving),
            ncclSuccess);
  ASSERT_EQ(network.isend(ends.sender.get(), from.data(), 11, from_registration, &sending),
            ncclSuccess);
  bool done = false;
  size_t size = 0;
  ncclResult_t code = ncclSuccess;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (code == ncclSuccess && std::chrono::steady_clock::now() < deadline)
    code = network.test(sending, done, size);
  EXPECT_EQ(code, ncclInternalError);
  EXPECT_NE(network.reason().find("does not fit into 10"), std::string::npos) << network.reason();
  for (code = ncclSuccess; code == ncclSuccess && std::chrono::steady_clock::now() < deadline;)
    code = network.test(receiving, done, size);
  EXPECT_EQ(code, ncclRemoteError);
  EXPECT_NE(network.reason().find("does not fit into 10"), std::string::npos) << network.reason();
}

// Sizes around the limits of inline data, stripes and pieces, all in flight at once.
WEFT_SCENARIO(messages_arrive) {
  const std::vector<size_t> sizes = {
      0, 1, 63, 64, 65, 4095, 4097, 131071, 131072, (1 << 20) + 1, 5, 200000, 1 << 20};
  Ends ends = connect_hosts(open_plugin(std::stoi(context.argument)));
  Network& network = *ends.network;
  std::vector<std::vector<uint8_t>> sent, received;
  std::vector<void*> sends, receives;
  for (size_t m = 0; m < sizes.size(); m++) {
    sent.emplace_back(sizes[m] + 1);
    for (size_t i = 0; i < sizes[m]; i += 8) {
      const uint64_t word = mix(m, i);
      std::memcpy(&sent[m][i], &word, std::min<size_t>(8, sizes[m] - i));
    }
    received.emplace_back(sizes[m] + 100, 0xee);
    // Memory registered as GPU memory is flushed and not sent inline. Here it is host memory too.
    const auto kind = m % 3 == 1 ? net_abi::kCudaPointer : net_abi::kHostPointer;
    void* from = ends.sender.reg(sent[m].data(), sent[m].size(), kind);
    void* to = ends.receiver.reg(received[m].data(), received[m].size(), kind);
    if (kind == net_abi::kCudaPointer) expect_flush_works(ends, received[m].data(), to);
    sends.push_back(nullptr);
    receives.push_back(nullptr);
    // Some messages wait for their receive; for others the receive is already posted.
    const auto receive = [&] {
      ASSERT_EQ(
          network.irecv(ends.receiver.get(), received[m].data(), sizes[m] + 100, to, &receives[m]),
          ncclSuccess);
      ASSERT_NE(receives[m], nullptr);
    };
    if (m % 2 == 0) receive();
    ASSERT_EQ(network.isend(ends.sender.get(), sent[m].data(), sizes[m], from, &sends[m]),
              ncclSuccess);
    ASSERT_NE(sends[m], nullptr);
    if (m % 2 != 0) receive();
  }
  size_t open = 2 * sizes.size();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (open > 0 && std::chrono::steady_clock::now() < deadline) {
    for (size_t m = 0; m < sizes.size(); m++) {
      bool done = false;
      size_t size = 0;
      if (sends[m] != nullptr) {
        ASSERT_EQ(network.test(sends[m], done, size), ncclSuccess) << network.reason();
        if (done) sends[m] = nullptr, open--;
      }
      done = false;
      if (receives[m] == nullptr) continue;
      ASSERT_EQ(network.test(receives[m], done, size), ncclSuccess) << network.reason();
      if (!done) continue;
      receives[m] = nullptr;
      open--;
      EXPECT_EQ(size, sizes[m]);
    }
    std::this_thread::yield();
  }
  ASSERT_EQ(open, 0u);
  for (size_t m = 0; m < sizes.size(); m++) {
    EXPECT_TRUE(std::equal(sent[m].begin(), sent[m].end() - 1, received[m].begin()))
        << "message of " << sizes[m] << " bytes";
    EXPECT_EQ(received[m][sizes[m]], 0xee) << "beyond a message of " << sizes[m] << " bytes";
  }
  expect_too_long_is_an_error(ends, sent[5], received[5]);
}

// Bursts of large messages of lanes: several follow a frame, and are invited at once.
WEFT_SCENARIO(lanes_arrive) {
  constexpr uint32_t kBursts = 15, kBurst = 8, kBytes = 64 << 10;
  Ends ends = connect_hosts(open_plugin(12));
  TestArea from, to;
  LanePair pair({std::move(ends.sender), std::move(ends.receiver)}, from.area(), to.area());
  Poster poster(pair.posts());
  for (uint32_t burst = 0; burst < kBursts; burst++) {
    const auto place = [&](uint32_t n) { return TestArea::kWords + n % 32 * (128u << 10); };
    const uint32_t first = burst * kBurst + 1, end = first + kBurst;
    for (uint32_t n = first; n < end; n++)
      for (uint32_t i = 0; i < kBytes; i++)
        from.begin()[place(n) + i] = static_cast<std::byte>(mix(n, i / 64) + i);
    for (uint32_t n = first; n < end; n++) {
      LanePost post = numbered_post(n, kBytes, place(n));
      post.word = 8;
      poster.post(post);
    }
    ASSERT_TRUE(to.gets(1, uint64_t{3} << 32 | (end - 1))) << "burst " << burst;
    for (uint32_t n = first; n < end; n++)
      EXPECT_EQ(std::memcmp(from.begin() + place(n), to.begin() + place(n), kBytes), 0) << n;
  }
  EXPECT_TRUE(from.has_sent(kBursts * kBurst));
}

TEST(Lanes, BringBurstsOfLargeMessages) {
  if (!guest_obstacle().empty()) WEFT_SKIP("rdma", guest_obstacle());
  ProcessOptions options;
  options.environment = [](int) {
    Environment all = separate_hosts(0);
    all["NCCL_IB_HCA"] = "=weft_a0,weft_b0";
    all["NCCL_IB_TIMEOUT"] = "17";
    return all;
  };
  run_ranks_as_processes("lanes_arrive", 1, options);
}

struct Setting {
  const char* name;
  int version;
  Environment environment;
};
void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

class Messages : public testing::TestWithParam<Setting> {};

TEST_P(Messages, ArriveWhole) {
  if (!guest_obstacle().empty()) WEFT_SKIP("rdma", guest_obstacle());
  ProcessOptions options;
  options.argument = std::to_string(GetParam().version);
  options.environment = [&](int) {
    Environment all = separate_hosts(0);
    all["NCCL_IB_TIMEOUT"] = "17";
    for (const auto& [name, value] : GetParam().environment) all[name] = value;
    return all;
  };
  run_ranks_as_processes("messages_arrive", 1, options);
}

INSTANTIATE_TEST_SUITE_P(
    Over, Messages,
    testing::Values(
        Setting{"oneQueuePair", 8, {{"NCCL_IB_HCA", "=weft_a0,weft_b0"}}},
        Setting{"queuePairsInTurn",
                11,
                {{"NCCL_IB_HCA", "=weft_a0,weft_b0"}, {"NCCL_IB_QPS_PER_CONNECTION", "3"}}},
        Setting{"twoRailsAndAllQueuePairs",
                12,
                {{"NCCL_IB_QPS_PER_CONNECTION", "2"}, {"NCCL_IB_SPLIT_DATA_ON_QPS", "1"}}},
        // Forced, and for all but the smallest messages. Soft-RoCE keeps the order anyway.
        Setting{"adaptiveRouting",
                12,
                {{"NCCL_IB_HCA", "=weft_a0,weft_b0"},
                 {"NCCL_IB_ADAPTIVE_ROUTING", "1"},
                 {"NCCL_IB_AR_THRESHOLD", "64"}}},
        Setting{"oneRailToTwo", 9, {{"NCCL_IB_HCA", "^weft_a1"}}}),
    [](const auto& tested) { return std::string(tested.param.name); });

// The device goes down when it has been found, and before it connects.
WEFT_SCENARIO(a_message_without_its_device) {
  auto network = open_plugin(12);
  Wires wires;
  wires.down(0);
  std::this_thread::sleep_for(patience(std::chrono::milliseconds(500)));
  Ends ends = connect_hosts(std::move(network), false);
  std::vector<int> sent(100000, 7), received(100000);
  const size_t bytes = sent.size() * sizeof(int);
  void* from = ends.sender.reg(sent.data(), bytes);
  void* to = ends.receiver.reg(received.data(), bytes);
  void *sending = nullptr, *receiving = nullptr;
  ASSERT_EQ(ends.network->irecv(ends.receiver.get(), received.data(), bytes, to, &receiving),
            ncclSuccess);
  ASSERT_EQ(ends.network->isend(ends.sender.get(), sent.data(), bytes, from, &sending),
            ncclSuccess);
  bool is_sent = false, is_received = false;
  size_t size = 0;
  const auto deadline = std::chrono::steady_clock::now() + patience(std::chrono::seconds(20));
  while (!(is_sent && is_received) && std::chrono::steady_clock::now() < deadline) {
    if (!is_sent) {
      ASSERT_EQ(ends.network->test(sending, is_sent, size), ncclSuccess) << ends.network->reason();
    }
    if (!is_received) {
      ASSERT_EQ(ends.network->test(receiving, is_received, size), ncclSuccess)
          << ends.network->reason();
    }
  }
  EXPECT_TRUE(is_sent && is_received);
  EXPECT_EQ(sent, received);
  wires.up(0);
}

TEST(Devices, ThatAreDownAtFirstAreReplacedToo) {
  if (!guest_obstacle().empty()) WEFT_SKIP("rdma", guest_obstacle());
  ProcessOptions options;
  options.environment = [](int) {
    Environment all = separate_hosts(0);
    all["NCCL_IB_TIMEOUT"] = "17";
    return all;
  };
  run_ranks_as_processes("a_message_without_its_device", 1, options);
  Wires().up(0);
}

}  // namespace
}  // namespace weft::test
