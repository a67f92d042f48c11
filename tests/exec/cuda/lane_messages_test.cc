// Messages of send/recv in the lane kernel on the host.
#include "src/exec/cuda/lane_messages.h"

#include <gtest/gtest.h>

#include "tests/exec/cuda/lane_team.h"

namespace weft::test {
namespace {

constexpr uint32_t kBlockThreads = 2 * kWarp;  // the first warp leads

// Every rank sends to some ranks, itself among them, in one kernel.
class MessageTeam {
 public:
  // `wide`: slots of odd and even ranks' messages to each other, as if they were on other hosts.
  MessageTeam(int nranks, bool in_shared, bool straight, uint8_t wide)
      : n_(nranks),
        in_shared_(in_shared),
        straight_(straight),
        wide_(wide),
        ranks_(static_cast<size_t>(n_)) {
    for (Rank& rank : ranks_) {
      rank.memory.resize(lane_area_pool(n_) + room().pool_bytes);
      rank.counters_of_messages.resize(static_cast<size_t>(2 * n_ * kMessageInstances));
    }
  }

  std::string exchange(Random& random) {
    // Bytes from rank to rank; 0: none.
    std::vector<uint64_t> sizes(static_cast<size_t>(n_ * n_));
    for (uint64_t& bytes : sizes)
      if (random.below(3) > 0) bytes = 1 + random.below(random.below(2) == 0 ? 20 : 30000);
    for (int r = 0; r < n_; r++) prepare(r, sizes);
    std::vector<std::thread> threads;
    for (Rank& rank : ranks_) {
      if (rank.arguments.items == 0) continue;
      threads.emplace_back([&rank] {
        EmulatedBlock(kBlockThreads).run([&](uint32_t) {
          LaneRunner<Bytes, Sum>(rank.arguments, rank.shared, rank.items.data(),
                                 rank.arguments.in_shared ? rank.waits.data() : nullptr)
              .run(rank.room.data());
        });
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int to = 0; to < n_; to++) {
      if (at(to).flags.error != 0) return "an error";
      for (int from = 0; from < n_; from++)
        if (const uint64_t bytes = sizes[static_cast<size_t>(from * n_ + to)]; bytes > 0)
          if (at(from).sent[static_cast<size_t>(to)] != at(to).received[static_cast<size_t>(from)])
            return std::to_string(bytes) + " bytes from " + std::to_string(from) + " to " +
                   std::to_string(to);
    }
    return "";
  }

 private:
  struct Rank {
    DeviceBytes memory, lanes, room, resolved;
    std::vector<uint32_t> counters_of_messages;
    std::vector<std::vector<std::byte>> sent, received;
    LaneCounters counters;
    HostFlags flags;
    LaneArguments arguments;
    LaneShared shared;
    std::vector<LaneItem> items;
    std::vector<LaneWait> waits;
  };
  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  LaneRoom room() const { return {2, 1 << 18, 2, 1 << 11}; }
  LaneWords& words(int rank) { return *reinterpret_cast<LaneWords*>(at(rank).memory.data()); }

  void prepare(int r, const std::vector<uint64_t>& sizes) {
    Rank& rank = at(r);
    LaneArguments& a = rank.arguments;
    a = {};
    a.watch = {&rank.flags, uint64_t{60} * 1'000'000'000};
    a.counters = &rank.counters;
    a.counts = false;
    a.in_shared = in_shared_;
    a.word_instances = kMessageInstances;
    a.slots = room().slots;
    a.slot_bytes = message_slot_bytes(room(), n_);
    rank.sent.assign(static_cast<size_t>(n_), {});
    rank.received.assign(static_cast<size_t>(n_), {});
    std::vector<std::vector<std::byte>> lanes;
    const auto add = [&](int peer, bool sends, std::vector<std::byte>& data, uint64_t bytes) {
      data.resize(bytes);
      for (uint64_t i = 0; i < bytes && sends; i++)
        data[i] = static_cast<std::byte>(i * 7 + static_cast<uint64_t>(r * 31 + peer));
      LaneHead head;
      head.own = true;
      head.counter =
          rank.counters_of_messages.data() + ((sends ? n_ : 0) + peer) * kMessageInstances;
      const uint64_t place =
          sends || !straight_ ? kPrivate : reinterpret_cast<uint64_t>(data.data());
      head.data = message_data(data.data(), bytes, place, a.slot_bytes,
                               (r + peer) % 2 == 0 ? uint8_t{1} : wide_);
      lanes.push_back(write_lane(
          message_lane(peer, sends), head,
          [&](const LaneImagePort& from, bool receives) { return port(from, r, receives); }));
    };
    for (int peer = 0; peer < n_; peer++) {
      const auto p = static_cast<size_t>(peer);
      if (const uint64_t out = sizes[static_cast<size_t>(r * n_ + peer)]; out > 0)
        add(peer, true, rank.sent[p], out);
      if (const uint64_t in = sizes[static_cast<size_t>(peer * n_ + r)]; in > 0)
        add(peer, false, rank.received[p], in);
    }
    rank.lanes.assign(join_lanes(lanes, a.lane_bytes, a.resolved_bytes));
    a.lanes = rank.lanes.data();
    a.lane_count = static_cast<uint32_t>(lanes.size());
    a.items = a.lane_count * kMessageInstances;
    rank.items.resize(a.items);
    rank.waits.resize(a.items);
    rank.room.resize(a.items * (a.lane_bytes + a.resolved_bytes));
    rank.resolved.resize(kMessageResolvedBytes);
    EXPECT_LE(a.items * a.resolved_bytes, kMessageResolvedBytes);
    a.resolved = rank.resolved.data();
  }

  LanePort port(const LaneImagePort& from, int r, bool receives) {
    const int consumer = receives ? r : from.peer, producer = receives ? from.peer : r;
    LanePort out;
    out.pool = at(consumer).memory.data() + lane_area_pool(n_);
    out.tails = words(consumer).message_tails();
    out.credits = words(producer).message_credits(n_);
    out.per_iteration = from.per_iteration;
    out.peer = from.peer;
    out.reachable = true;
    place_message_port(out, consumer, producer);
    return out;
  }

  const int n_;
  const bool in_shared_, straight_;
  const uint8_t wide_;
  std::vector<Rank> ranks_;
};

TEST(LaneKernel, ExchangesMessages) {
  for (const bool in_shared : {false, true})
    for (const bool straight : {false, true})
      for (const uint8_t wide : {1, 4}) {
        MessageTeam team(4, in_shared, straight, wide);
        Random random(mix(test_seed(), 44));
        for (int round = 0; round < 4; round++)
          ASSERT_EQ(team.exchange(random), "")
              << in_shared << straight << int{wide} << ' ' << round;
      }
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
