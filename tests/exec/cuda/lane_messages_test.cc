// Messages of send/recv in the lane kernel on the host.
#include "src/exec/cuda/lane_messages.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>

#include "src/exec/cuda/kernels/small_message_kernel.cuh"
#include "tests/exec/cuda/lane_network.h"
#include "tests/exec/cuda/lane_ranks.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

struct MessageCase {
  bool in_shared = true, straight = true;
  uint8_t wide = 1;      // slots of messages between ranks of odd and even numbers
  int host = 0;          // ranks of a host; 0: all are on one
  bool packets = false;  // for small messages
  uint32_t blocks = 1;   // of a rank, at most
  uint32_t warps = 2;    // of a block
  bool teams = true;     // small messages have a kernel of their own, if it has no others
};

// Every rank sends to some ranks, itself among them, in one kernel.
class MessageTeam {
 public:
  MessageTeam(int nranks, const MessageCase& shape)
      : n_(nranks), shape_(shape), ranks_(static_cast<size_t>(n_)) {
    std::vector<LaneArea> areas;
    for (Rank& rank : ranks_) {
      rank.memory.resize(small_outbox_at() + message_packets_bytes(n_));
      rank.counters_of_messages.resize(static_cast<size_t>(2 * n_ * kMessageInstances));
      areas.push_back({rank.memory, lane_area_pool(n_), &rank.sent, nullptr, {}});
    }
    if (shape.host > 0)
      network_ = std::make_unique<LaneNetwork>(
          areas, [this](int a, int b) { return apart(a, b); }, false);
  }

  // Bytes from rank to rank; 0: none.
  using Sizes = std::vector<uint64_t>;
  // Kernels, one for each of `all`. A rank begins the next one when it is done with one.
  std::string exchange(const std::vector<Sizes>& all) {
    prepare(all);
    std::vector<std::thread> threads;
    for (int r = 0; r < n_; r++) threads.emplace_back([this, r] { run_rank(r); });
    for (std::thread& thread : threads) thread.join();
    return check(all);
  }
  std::string exchange(Random& random) {
    Sizes sizes(static_cast<size_t>(n_ * n_));
    for (uint64_t& bytes : sizes)
      if (random.below(3) > 0) bytes = 1 + random.below(random.below(2) == 0 ? 20 : 30000);
    return exchange({sizes});
  }

  // Whether a rank is done while the others have not begun. They begin then, or after some time:
  // long if it `should`.
  bool ends_before_others(int first, const std::vector<Sizes>& all, bool should) {
    prepare(all);
    std::atomic<bool> ended{false};
    std::vector<std::thread> threads;
    threads.emplace_back([&] {
      run_rank(first);
      ended = true;
    });
    for (int tries = 0; tries < (should ? 30'000 : 200) && !ended; tries++)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const bool before = ended;
    for (int r = 0; r < n_; r++)
      if (r != first) threads.emplace_back([this, r] { run_rank(r); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(check(all), "");
    return before;
  }

  // All ranks run one kernel. Rank 0 waits for rank `late` when half of the next grant of
  // `consumer` comes.
  std::string exchange_with_half_a_grant(const Sizes& sizes, int consumer, int late) {
    prepare({sizes});
    std::vector<std::thread> threads;
    for (int r = 0; r < n_; r++)
      if (r != late) threads.emplace_back([this, r] { run_rank(r); });
    Packet& grant = words(0).message_credits(n_)[consumer * kMessageInstances].grant;
    while (__atomic_load_n(&grant.flag0, __ATOMIC_ACQUIRE) != 1) std::this_thread::yield();
    __atomic_store_n(&grant.flag1, 2u, __ATOMIC_RELEASE);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    threads.emplace_back([this, late] { run_rank(late); });
    for (std::thread& thread : threads) thread.join();
    return check({sizes});
  }

  // A rank runs its kernel, and the others do not. It knows that `left` is gone, or is told to
  // stop.
  uint64_t error_of(int rank, const Sizes& sizes, int left) {
    prepare({sizes});
    HostFlags& flags = at(rank).flags;
    if (left >= 0) *gone_word(&flags, left) |= 1u << left;
    std::thread thread([this, rank] { run_rank(rank); });
    if (left < 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      __atomic_store_n(&flags.stop, 1u, __ATOMIC_RELEASE);
    }
    thread.join();
    return flags.error;
  }

  uint64_t most_small() const { return small_message_bytes(room(), n_); }
  // Kernels of small messages only, and others that have some.
  std::pair<size_t, size_t> with_packets() const {
    std::pair<size_t, size_t> all;
    for (const Rank& rank : ranks_)
      for (const Kernel& kernel : rank.kernels) {
        all.first += kernel.small_blocks > 0 ? 1 : 0;
        all.second += kernel.small_blocks == 0 && kernel.arguments.eager ? 1 : 0;
      }
    return all;
  }

 private:
  struct Kernel {
    DeviceBytes lanes, resolved;
    std::vector<std::vector<std::byte>> sent, received;
    LaneArguments arguments;
    // Of small messages only: the arguments and the messages.
    std::vector<SmallMessage> messages;
    DeviceBytes small;
    uint32_t small_blocks = 0;
  };
  struct Rank {
    DeviceBytes memory;  // words, pool, and the outboxes
    std::vector<uint32_t> counters_of_messages;
    LaneCounters counters;
    HostFlags flags;
    uint64_t sent = 0;  // see lane_area_pool()
    std::deque<Kernel> kernels;
  };
  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  LaneRoom room() const {
    LaneRoom room{2, 1 << 18, 2, 1 << 11};
    room.packet_bytes = shape_.packets ? 256 : 0;
    return room;
  }
  LaneWords& words(int rank) { return *reinterpret_cast<LaneWords*>(at(rank).memory.data()); }
  size_t outbox_at() const { return lane_area_pool(n_) + room().pool_bytes; }
  size_t small_outbox_at() const { return outbox_at() + room().pool_bytes; }
  bool apart(int a, int b) const { return shape_.host > 0 && a / shape_.host != b / shape_.host; }

  void run_rank(int r) {
    Rank& rank = at(r);
    std::deque<LaneBlock> blocks(shape_.blocks);
    EmulatedGrid(shape_.blocks, shape_.warps * kWarp)
        .run(
            rank.kernels.size(),
            [&](size_t k) {
              const Kernel& kernel = rank.kernels[k];
              return kernel.small_blocks > 0 ? kernel.small_blocks : blocks_of(kernel.arguments);
            },
            [&](size_t k) {
              const Kernel& kernel = rank.kernels[k];
              const LaneArguments& a = kernel.arguments;
              if (kernel.small_blocks > 0)
                run_small_messages(
                    *reinterpret_cast<const SmallMessageArguments*>(kernel.small.data()));
              else if (a.items > 0)
                blocks[blockIdx.x].run<Bytes>(a, shape_.in_shared);
            },
            [&](size_t k) {
              if (k % static_cast<size_t>(n_) == static_cast<size_t>(r))
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            });
  }
  uint32_t blocks_of(const LaneArguments& a) const {
    return std::clamp(a.items, 1u, shape_.blocks);
  }

  void prepare(const std::vector<Sizes>& all) {
    for (int r = 0; r < n_; r++) {
      at(r).kernels.clear();
      for (const Sizes& sizes : all) prepare(r, sizes);
    }
  }
  std::string check(const std::vector<Sizes>& all) {
    for (size_t k = 0; k < all.size(); k++)
      if (std::string wrong = check(all[k], k); !wrong.empty())
        return "kernel " + std::to_string(k) + ": " + wrong;
    return "";
  }
  std::string check(const Sizes& sizes, size_t k) {
    for (int to = 0; to < n_; to++) {
      if (at(to).flags.error != 0) return "an error";
      for (int from = 0; from < n_; from++)
        if (const uint64_t bytes = sizes[static_cast<size_t>(from * n_ + to)]; bytes > 0)
          if (at(from).kernels[k].sent[static_cast<size_t>(to)] !=
              at(to).kernels[k].received[static_cast<size_t>(from)])
            return std::to_string(bytes) + " bytes from " + std::to_string(from) + " to " +
                   std::to_string(to);
    }
    return "";
  }

  void prepare(int r, const Sizes& sizes) {
    Rank& rank = at(r);
    const size_t number = rank.kernels.size();
    Kernel& kernel = rank.kernels.emplace_back();
    LaneArguments& a = kernel.arguments;
    a.watch = {&rank.flags, uint64_t{60} * 1'000'000'000};
    a.counters = &rank.counters;
    a.counts = false;
    a.ranks = static_cast<uint32_t>(n_);
    a.in_shared = shape_.in_shared;
    a.word_instances = kMessageInstances;
    a.slots = room().slots;
    a.slot_bytes = message_slot_bytes(room(), n_);
    if (shape_.host > 0) a.sent = &rank.sent;
    a.small_outbox_at = small_outbox_at() - outbox_at();
    kernel.sent.resize(static_cast<size_t>(n_));
    kernel.received.resize(static_cast<size_t>(n_));
    std::vector<std::vector<std::byte>> lanes;
    uint64_t largest = 0;
    uint32_t instances = 1;
    const auto add = [&](int peer, bool sends, std::vector<std::byte>& data, uint64_t bytes) {
      data.resize(bytes);
      for (uint64_t i = 0; i < bytes && sends; i++)
        data[i] = static_cast<std::byte>(i * 7 + static_cast<uint64_t>(r * 31 + peer) + number * 5);
      LaneHead head;
      head.own = true;
      head.packets = bytes <= most_small();
      a.eager = a.eager || head.packets;
      largest = std::max(largest, bytes);
      head.counter =
          rank.counters_of_messages.data() + ((sends ? n_ : 0) + peer) * kMessageInstances;
      const uint64_t place = sends || !shape_.straight || apart(r, peer)
                                 ? kPrivate
                                 : reinterpret_cast<uint64_t>(data.data());
      head.data = head.packets ? small_message_data(data.data(), bytes)
                               : message_data(data.data(), bytes, place, a.slot_bytes,
                                              (r + peer) % 2 == 0 ? uint8_t{1} : shape_.wide);
      instances = std::max(instances, head.data.instances);
      lanes.push_back(write_lane(
          message_lane(peer, sends), head,
          [&](const LaneImagePort& from, bool receives) { return port(from, r, receives); }));
      kernel.messages.push_back(small_message(port({peer, 0, 0, 1}, r, !sends), sends, data.data(),
                                              bytes, head.counter, n_, rank.memory.data(),
                                              a.small_outbox_at));
    };
    for (int peer = 0; peer < n_; peer++) {
      const auto p = static_cast<size_t>(peer);
      if (const uint64_t out = sizes[static_cast<size_t>(r * n_ + peer)]; out > 0)
        add(peer, true, kernel.sent[p], out);
      if (const uint64_t in = sizes[static_cast<size_t>(peer * n_ + r)]; in > 0)
        add(peer, false, kernel.received[p], in);
    }
    kernel.lanes.assign(join_lanes(lanes, a.lane_bytes, a.resolved_bytes));
    a.lanes = kernel.lanes.data();
    a.lane_count = static_cast<uint32_t>(lanes.size());
    a.items = a.lane_count * instances;
    if (shape_.teams && largest <= most_small() && !lanes.empty()) prepare_small(kernel, largest);
    kernel.resolved.resize(kMessageResolvedBytes);
    EXPECT_LE(a.items * a.resolved_bytes, kMessageResolvedBytes);
    a.resolved = kernel.resolved.data();
  }

  void prepare_small(Kernel& kernel, uint64_t largest) {
    SmallMessageArguments a;
    a.watch = kernel.arguments.watch;
    a.counters = kernel.arguments.counters;
    a.count = static_cast<uint32_t>(kernel.messages.size());
    a.half = small_message_half(n_);
    const SmallMessageGrid grid =
        small_message_grid(a.count, static_cast<uint32_t>((largest + 7) / 8), shape_.warps * kWarp,
                           shape_.blocks, kWarp);
    a.team = grid.team;
    kernel.small_blocks = grid.blocks;
    kernel.small.resize(small_message_parameters(kernel.messages.size()));
    std::memcpy(kernel.small.data(), static_cast<const void*>(&a), sizeof a);
    std::memcpy(kernel.small.data() + sizeof a, kernel.messages.data(),
                kernel.messages.size() * sizeof(SmallMessage));
  }

  LanePort port(const LaneImagePort& from, int r, bool receives) {
    const int consumer = receives ? r : from.peer, producer = receives ? from.peer : r;
    LanePort out;
    out.pool = at(consumer).memory.data() + lane_area_pool(n_);
    out.tails = words(consumer).message_tails();
    out.credits = words(producer).message_credits(n_);
    out.packets = words(consumer).small_messages(n_);
    out.grant = words(producer).grants(n_);
    out.per_iteration = from.per_iteration;
    out.peer = from.peer;
    out.reachable = true;
    place_message_port(out, consumer, producer);
    if (apart(r, from.peer))
      network_->connect(out, r, at(r).memory.data(), receives, lane_area_pool(n_), outbox_at());
    return out;
  }

  const int n_;
  const MessageCase shape_;
  std::deque<Rank> ranks_;
  std::unique_ptr<LaneNetwork> network_;
};

TEST(LaneKernel, ExchangesMessages) {
  for (const bool in_shared : {false, true})
    for (const bool straight : {false, true})
      for (const uint8_t wide : {1, 4}) {
        MessageCase shape;
        shape.in_shared = in_shared;
        shape.straight = straight;
        shape.wide = wide;
        shape.blocks = straight ? 1 : 3;
        MessageTeam team(4, shape);
        Random random(mix(test_seed(), 44));
        for (int round = 0; round < 4; round++)
          ASSERT_EQ(team.exchange(random), "")
              << in_shared << straight << int{wide} << ' ' << round;
      }
}

// Small messages, large ones, and kernels of both. A rank sends the next message when its consumer
// has entered the kernel of the one before, so they come while others run.
TEST(LaneMessages, AreInPacketsIfTheyAreSmall) {
  for (const int host : {0, 1, 2})
    for (const uint32_t blocks : {1u, 3u})
      for (const bool teams : {false, true}) {
        const uint32_t warps = blocks == 1 ? 4 : 2;
        MessageCase shape;
        shape.blocks = blocks;
        shape.host = host;
        shape.packets = true;
        shape.warps = warps;
        shape.teams = teams;
        shape.in_shared = teams;
        MessageTeam team(4, shape);
        const uint64_t small = team.most_small();
        ASSERT_EQ(small, 256u);
        Random random(mix(test_seed(), 45));
        std::vector<MessageTeam::Sizes> all;
        for (int k = 0; k < (kSanitized ? 6 : 30); k++) {
          MessageTeam::Sizes& sizes = all.emplace_back(16);
          const uint64_t few = random.below(3), kind = static_cast<uint64_t>(k) % 3;
          for (uint64_t& bytes : sizes) {
            if (few > 0 && random.below(1 + few) > 0) continue;
            const bool large = kind == 2 || (kind == 1 && random.below(3) == 0);
            bytes = large ? small + 1 + random.below(9000) : 1 + random.below(small);
          }
        }
        ASSERT_EQ(team.exchange(all), "") << host << ' ' << blocks << teams;
        const auto [alone, beside] = team.with_packets();
        EXPECT_EQ(alone > 0, teams);
        EXPECT_GT(beside, 0u);
      }
}

// Rank 0 sends a message that nobody has asked for yet, and its kernel ends. The next one waits
// until that is expected, and its consumer gets both.
TEST(LaneMessages, GoBeforeTheyAreExpected) {
  const MessageTeam::Sizes small = {0, 200, 0, 0}, large = {0, 2000, 0, 0}, back = {0, 0, 9, 0};
  for (const int host : {0, 1})
    for (const bool teams : {false, true}) {
      MessageCase shape;
      shape.host = host;
      shape.packets = true;
      shape.teams = teams;
      MessageTeam team(2, shape);
      EXPECT_TRUE(team.ends_before_others(0, {small}, true)) << host << teams;
      EXPECT_FALSE(team.ends_before_others(0, {small, small}, false)) << host << teams;
      EXPECT_FALSE(team.ends_before_others(0, {large}, false)) << host << teams;
      EXPECT_FALSE(team.ends_before_others(0, {small, back}, false)) << host << teams;
      EXPECT_TRUE(team.ends_before_others(0, {small}, true)) << host << teams;
    }
}

// Their grants have one place. What is left of one while the next one comes is no other call.
TEST(LaneMessages, MayBeGrantedInTwoHalves) {
  for (const int host : {0, 1}) {
    MessageCase shape;
    shape.host = host;
    shape.packets = true;
    shape.teams = false;
    MessageTeam team(3, shape);
    EXPECT_EQ(team.exchange_with_half_a_grant({0, 200, 0, 0, 0, 0, 200, 0, 0}, 1, 2), "") << host;
  }
}

// A kernel that waits for a rank that has left names it, and ends when it is told to.
TEST(LaneMessages, EndIfTheirRankHasLeft) {
  const MessageTeam::Sizes receives = {0, 0, 0, 0, 0, 0, 200, 0, 0};  // rank 0, from rank 2
  for (const bool teams : {false, true})
    for (const int left : {-1, 2}) {
      MessageCase shape;
      shape.packets = true;
      shape.teams = teams;
      MessageTeam team(3, shape);
      const KernelFault fault = fault_of(team.error_of(0, receives, left));
      EXPECT_EQ(fault.error, left < 0 ? KernelError::kNone : KernelError::kLeft) << teams;
      EXPECT_EQ(fault.peer, left) << teams;
    }
}

// Every message has a team, in as many blocks as there are.
TEST(LaneMessages, HaveTeamsThatFit) {
  for (const uint32_t count : {1u, 2u, 7u, 64u})
    for (const uint32_t words : {1u, 32u, 33u, 500u, 1024u})
      for (const uint32_t blocks : {1u, 2u, 5u, 64u}) {
        const SmallMessageGrid grid = small_message_grid(count, words, 512, blocks);
        if (count > 16 * blocks) {
          EXPECT_EQ(grid.blocks, 0u);
          continue;
        }
        ASSERT_GT(grid.blocks, 0u) << count << ' ' << words << ' ' << blocks;
        EXPECT_LE(grid.blocks, blocks);
        EXPECT_LE(grid.threads, 512u);
        EXPECT_EQ(grid.team % 32, 0u);
        EXPECT_GE(grid.threads / grid.team * grid.blocks, count);
        EXPECT_TRUE(grid.team < words + 32) << "threads without words";
      }
  EXPECT_EQ(small_message_grid(2, 1024, 512, 2).team, 512u);
  EXPECT_EQ(small_message_grid(2, 1, 512, 16).blocks, 1u);
}

TEST(LaneMessages, ToOtherHostsAreFewAndLarge) {
  const uint32_t slot = 64 << 10;
  const uint8_t wide = wide_slots(slot);
  EXPECT_EQ(wide * slot, 256u << 10);
  EXPECT_EQ(wide_slots(256 << 10), 1) << "they are large already";
  std::byte data{};
  for (const uint64_t kib : {1, 256, 1024, 9216}) {
    const uint64_t bytes = kib << 10;
    const LaneData near = message_data(&data, bytes, kPrivate, slot, 1);
    const LaneData far = message_data(&data, bytes, kPrivate, slot, wide);
    EXPECT_LE(far.slice, wide * slot);
    EXPECT_GE(far.slice * far.instances * far.iterations, bytes);
    EXPECT_LE(far.instances * wide, static_cast<uint32_t>(kMessageInstances));
    EXPECT_LE(far.instances * far.iterations, near.instances * near.iterations);
  }
  EXPECT_EQ(message_data(&data, 256 << 10, kPrivate, slot, 1).instances, 4u);
  EXPECT_EQ(message_data(&data, 256 << 10, kPrivate, slot, wide).instances, 1u);
}

}  // namespace
}  // namespace weft::test
