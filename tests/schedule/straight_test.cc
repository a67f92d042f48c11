// Which messages may go straight into the receiver's memory, in schedules whose answers are known.
#include "src/schedule/straight.h"

#include <gtest/gtest.h>

#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"

namespace weft::test {
namespace {

constexpr StraightPlace kThroughFifo;

Lane& lane_of(Schedule& s, int rank, int number = 0) {
  return s.ranks[static_cast<size_t>(rank)].lanes[static_cast<size_t>(number)];
}

StraightPlace output(int index) { return {Buffer::kOutput, index}; }
StraightPlace scratch(int index) { return {Buffer::kScratch, index}; }

// The places of the messages that a rank receives, in order.
std::vector<StraightPlace> received(const VerifiedSchedule& verified, int rank) {
  const std::vector<StraightPlace> places = straight_places(verified, rank);
  std::vector<StraightPlace> mine;
  size_t operand = 0;
  for (const Lane& lane : verified.schedule().ranks[static_cast<size_t>(rank)].lanes)
    for (const Step& step : lane.steps) {
      for (const Operand& from : step.from) {
        if (from.kind == Operand::Kind::kPeer) mine.push_back(places[operand]);
        operand++;
      }
      operand += step.to.size();
    }
  EXPECT_EQ(operand, places.size());
  return mine;
}

using Places = std::vector<StraightPlace>;

TEST(Straight, AllMessagesOfARingAllGatherAre) {
  for (const bool in_place : {false, true}) {
    const VerifiedSchedule verified =
        verify(kRing.make({CollectiveKind::kAllGather, 4, 0}, in_place), in_place);
    EXPECT_EQ(received(verified, 1), (Places{output(0), output(3), output(2)}));
  }
}

TEST(Straight, OnlyFinishedChunksOfARingAllReduceAre) {
  for (const bool in_place : {false, true}) {
    const VerifiedSchedule verified =
        verify(kRing.make({CollectiveKind::kAllReduce, 3, 0}, in_place), in_place);
    EXPECT_EQ(received(verified, 0), (Places{kThroughFifo, kThroughFifo, output(2), output(1)}));
  }
}

TEST(Straight, SendersGetThePlaceOfTheirReceiver) {
  const VerifiedSchedule verified =
      verify(kRing.make({CollectiveKind::kAllGather, 2, 0}, false), false);
  // input 0 -> peer; peer -> output 1; input 0 -> output 0
  EXPECT_EQ(straight_places(verified, 0),
            (Places{kThroughFifo, output(0), output(1), kThroughFifo, kThroughFifo, kThroughFifo}));
}

// Two ranks exchange a chunk. In place, the chunk that arrives replaces the one that is sent.
TEST(Straight, MessagesOntoAChunkThatIsReadLaterAreNot) {
  Schedule s = blank("exchange", {CollectiveKind::kAllToAll, 2, 0}, 1, 1);
  for (int r = 0; r < 2; r++) {
    add(lane_of(s, r), {Operand::input(1 - r)}, {Operand::peer(1 - r)});
    add(lane_of(s, r), {Operand::peer(1 - r)}, {Operand::output(1 - r)});
    add(lane_of(s, r), {Operand::input(r)}, {Operand::output(r)});
  }
  for (int r = 0; r < 2; r++) {
    EXPECT_EQ(received(verify(s, false), r), (Places{output(1 - r)}));
    EXPECT_EQ(received(verify(s, true), r), (Places{kThroughFifo}));
  }
}

// Rank 1 takes two chunks through one chunk of scratch. `told`: it tells rank 0 when the first is
// out of the way.
Schedule through_scratch(bool told) {
  Schedule s = blank("through scratch", {CollectiveKind::kBroadcast, 2, 0}, 2, 1);
  s.ranks[1].scratch_chunks = 1;
  for (int c = 0; c < 2; c++) {
    add(lane_of(s, 0), {Operand::input(c)}, {Operand::output(c), Operand::peer(1)});
    add(lane_of(s, 1), {Operand::peer(0)}, {Operand::scratch(0)});
    add(lane_of(s, 1), {Operand::scratch(0)}, {Operand::output(c)});
    if (c == 1 || !told) continue;
    add(lane_of(s, 1), {}, {Operand::peer(0)}, 0);
    add(lane_of(s, 0), {Operand::peer(1)}, {}, 0);
  }
  return s;
}

TEST(Straight, ScratchIsUsedAgainOnlyAfterItsReader) {
  EXPECT_EQ(received(verify(through_scratch(false), false), 1), (Places{scratch(0), kThroughFifo}));
  EXPECT_EQ(received(verify(through_scratch(true), false), 1), (Places{scratch(0), scratch(0)}));
}

TEST(Straight, TokensAreNot) {
  EXPECT_EQ(received(verify(through_scratch(true), false), 0), (Places{kThroughFifo}));
}

TEST(Straight, AllChunksOfAMessageCount) {
  Schedule s = blank("pairs", {CollectiveKind::kBroadcast, 2, 0}, 2, 1);
  s.ranks[1].scratch_chunks = 3;
  add(lane_of(s, 0), {Operand::input(0)}, {Operand::output(0), Operand::peer(1)}, 2);
  add(lane_of(s, 0), {Operand::output(0)}, {Operand::peer(1)}, 2);
  add(lane_of(s, 1), {Operand::peer(0)}, {Operand::scratch(1)}, 2);
  add(lane_of(s, 1), {Operand::scratch(2)}, {Operand::output(1)});
  add(lane_of(s, 1), {Operand::peer(0)}, {Operand::scratch(0)}, 2);
  add(lane_of(s, 1), {Operand::scratch(0)}, {Operand::output(0)});
  EXPECT_EQ(received(verify(s, false), 1), (Places{scratch(1), kThroughFifo}));
}

TEST(Straight, AChunkThatTheReceiverWritesTwiceIsNot) {
  Schedule s = blank("twice", {CollectiveKind::kAllReduce, 2, 0}, 1, 1);
  add(lane_of(s, 0), {Operand::input(0), Operand::peer(1)}, {Operand::output(0), Operand::peer(1)});
  add(lane_of(s, 1), {Operand::input(0)}, {Operand::peer(0)});
  add(lane_of(s, 1), {Operand::peer(0)}, {Operand::output(0), Operand::input(0)});
  EXPECT_EQ(received(verify(s, true), 1), (Places{kThroughFifo}));
  lane_of(s, 1).steps[1].to.pop_back();
  EXPECT_EQ(received(verify(s, true), 1), (Places{output(0)}));
}

// Rank 1 has no output of its own for what it forwards.
TEST(Straight, MessagesThatAreOnlyForwardedAreNot) {
  Schedule s = blank("forward", {CollectiveKind::kReduce, 3, 0}, 1, 1);
  add(lane_of(s, 2), {Operand::input(0)}, {Operand::peer(1)});
  add(lane_of(s, 1), {Operand::peer(2)}, {Operand::peer(0)});
  add(lane_of(s, 1), {Operand::input(0)}, {Operand::peer(0)});
  s.ranks[0].scratch_chunks = 1;
  add(lane_of(s, 0), {Operand::peer(1)}, {Operand::scratch(0)});
  add(lane_of(s, 0), {Operand::scratch(0), Operand::peer(1), Operand::input(0)},
      {Operand::output(0)});
  EXPECT_EQ(received(verify(s, false), 1), (Places{kThroughFifo}));
  EXPECT_EQ(received(verify(s, false), 0), (Places{scratch(0), kThroughFifo}));
}

// Rank 2 reads both chunks in rank 1's memory, one after the other, from the same chunk of scratch.
TEST(Straight, ReadersInOtherRanksCount) {
  Schedule s = blank("remote", {CollectiveKind::kBroadcast, 3, 0}, 2, 1);
  s.ranks[1].scratch_chunks = 1;
  for (int c = 0; c < 2; c++) {
    add(lane_of(s, 0), {Operand::input(c)}, {Operand::output(c), Operand::peer(1)});
    add(lane_of(s, 1), {Operand::peer(0)}, {Operand::scratch(0), Operand::output(c)});
    add(lane_of(s, 1), {}, {Operand::peer(2)}, 0);
    add(lane_of(s, 1), {Operand::peer(2)}, {}, 0);
    add(lane_of(s, 2), {Operand::peer(1)}, {}, 0);
    add(lane_of(s, 2), {Operand::remote(1, Buffer::kScratch, 0)}, {Operand::output(c)});
    add(lane_of(s, 2), {}, {Operand::peer(1)}, 0);
  }
  EXPECT_EQ(received(verify(s, false), 1),
            (Places{scratch(0), kThroughFifo, kThroughFifo, kThroughFifo}));
}

TEST(Straight, LargeSchedulesAreNotAnalysed) {
  for (const int n : {200, 600}) {
    const VerifiedSchedule verified =
        verify(kRing.make({CollectiveKind::kAllGather, n, 0}, true), true);
    EXPECT_EQ(received(verified, 0)[0], n == 200 ? output(199) : kThroughFifo);
  }
}

}  // namespace
}  // namespace weft::test
