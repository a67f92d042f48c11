// How large FIFOs are on several networks, and what connections tell of theirs.
#include "src/transport/net_facts.h"

#include <gtest/gtest.h>

#include "src/exec/cuda/lane_geometry.h"
#include "tests/transport/loopback_network.h"

namespace weft::test {
namespace {

constexpr uint64_t kMiB = 1 << 20;

NetFacts network(double round_trip_us, double gbit) { return {round_trip_us, gbit * 1000 / 8}; }

TEST(NetFacts, GiveFifosOfTwoRoundTripsWithinBounds) {
  EXPECT_EQ(lane_fifo_bytes({}), kMiB) << "loopback";
  EXPECT_EQ(lane_fifo_bytes(network(0, 400)), kMiB) << "nobody knows the time";
  EXPECT_EQ(lane_fifo_bytes(network(50, 0)), kMiB) << "nobody knows the rate";
  EXPECT_EQ(lane_fifo_bytes(network(30, 10)), kMiB) << "slow, near";
  EXPECT_EQ(lane_fifo_bytes(network(4, 400)), kMiB) << "fast, near";
  EXPECT_EQ(lane_fifo_bytes(network(1000, 1)), kMiB) << "slow, far";
  EXPECT_EQ(lane_fifo_bytes(network(60, 200)), 4 * kMiB) << "fast, not near";
  EXPECT_EQ(lane_fifo_bytes(network(1000, 10)), 4 * kMiB);
  EXPECT_EQ(lane_fifo_bytes(network(40000, 100)), 8 * kMiB) << "another continent";
}

TEST(NetFacts, AreThoseOfMostConnections) {
  const NetFacts usual =
      usual_facts({network(20, 100), network(30, 100), network(9000, 25), network(0, 0)});
  EXPECT_EQ(usual.round_trip_us, 30);
  EXPECT_EQ(usual.bytes_per_us, 12500);
  EXPECT_EQ(usual_facts({}).round_trip_us, 0);
}

TEST(NetFacts, SurviveTheWireAndNothingElseDoes) {
  const NetFacts sent = network(35.5, 200), got = NetFacts::decode(sent.encode());
  EXPECT_EQ(got.round_trip_us, sent.round_trip_us);
  EXPECT_EQ(got.bytes_per_us, sent.bytes_per_us);
  EXPECT_EQ(NetFacts::decode("connected").round_trip_us, 0);
  EXPECT_EQ(NetFacts::decode(NetFacts{1. / 0., 5}.encode()).bytes_per_us, 0);
}

TEST(NetFacts, AreNotKnownOfConnectionsWithinAMachine) {
  const auto network = loopback_network();
  const auto [sender, receiver] = connect_pair(network);
  EXPECT_EQ(network->round_trip_us(sender.get()), 0);
  EXPECT_EQ(network->round_trip_us(receiver.get()), 0);
}

// A ring between two hosts that are far apart.
TEST(NetFacts, OfALongNetworkGiveMoreMessagesOfTheUsualSize) {
  cuda::LaneImage image;
  image.chunks = 2;
  image.most_lanes = 4;
  image.most_ports = 2;
  image.fifo_depth = 2;
  cuda::LaneRoom room;
  room.blocks = 4;
  room.pool_bytes = 16 << 20;
  room.least_bytes = 64 << 10;
  const auto cut = [&](const NetFacts& facts, uint64_t most_slot_bytes) {
    room.fifo_bytes = lane_fifo_bytes(facts);
    room.most_slot_bytes = most_slot_bytes;
    return cuda::lane_geometry(image, room, 64 << 20, 4);
  };
  const cuda::LaneGeometry near = cut({}, 256 << 10), before = cut({}, 0),
                           far = cut(network(1000, 20), 256 << 10);
  EXPECT_EQ(near.slots, before.slots);
  EXPECT_EQ(near.slot_bytes, before.slot_bytes);
  EXPECT_EQ(near.slots, 4u);
  EXPECT_EQ(far.slot_bytes, near.slot_bytes);
  EXPECT_GE(far.slots, 30u);
  EXPECT_LE(far.scratch_at, room.pool_bytes);
}

}  // namespace
}  // namespace weft::test
