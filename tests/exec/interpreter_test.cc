// The interpreter on tiny FIFOs: wrap-around, lending, any order of lanes, and peers that disagree.
#include "src/exec/interpreter.h"

#include <gtest/gtest.h>

#include "src/schedule/lower.h"
#include "src/schedule/verify.h"
#include "tests/exec/world.h"

namespace weft::test {
namespace {

// Calls visit(call) for every call that the generator supports with n ranks and the host can run.
template <typename Visit>
void for_calls(const Generator& generator, int n, Visit visit) {
  for (int kind = 0; kind < kCollectiveKinds; kind++) {
    const Collective c{static_cast<CollectiveKind>(kind), n, n - 1};
    if (!generator.supports(c)) continue;
    for (const bool in_place : {false, true}) {
      if (lower(verify(generator.make(c, in_place), in_place), 0).reaches_memory) continue;
      WorldCall call;
      call.generator = &generator;
      call.collective = c;
      call.in_place = in_place;
      visit(call);
    }
  }
}

// The size of a FIFO that holds four of the largest messages, as the communicator makes them.
uint64_t ring_bytes(int n, uint64_t slice_bytes) {
  return 4 * (64 + static_cast<uint64_t>(std::max(1, n / 2)) * slice_bytes);
}

TEST(Interpreter, RunsEveryGeneratorOnTinyRingsInAnyOrder) {
  Random random(test_seed());
  for (const Generator& generator : generators()) {
    for (const int n : {1, 2, 3, 4, 7}) {
      const uint64_t slice = 64 * (1 + random.below(3));
      World world(n, ring_bytes(n, slice));
      for_calls(generator, n, [&](WorldCall call) {
        for (const bool lend : {false, true}) {
          call.lend = lend;
          call.slice_bytes = slice;
          call.count = random.below(4) == 0 ? random.below(5) : random.below(600);
          call.gap = random.below(3);
          ASSERT_EQ(world.run_in_random_order(call, random), "")
              << generator.name << ' ' << name(call.collective.kind) << " ranks " << n << " count "
              << call.count << " slice " << slice << (call.in_place ? " in place" : "")
              << (lend ? " lent" : "");
        }
      });
    }
  }
}

TEST(Interpreter, GoesRoundItsRingManyTimesWithMessagesThatDoNotFitEvenly) {
  Random random(mix(test_seed(), 1));
  for (const uint64_t ring : {448, 512, 576, 1024}) {
    World world(2, ring);
    WorldCall call;
    call.generator = &kSendRecv;
    call.collective = {CollectiveKind::kSendRecv, 2, 0};
    call.slice_bytes = 128;
    for (int i = 0; i < 20; i++) {
      call.count = random.below(2000);
      ASSERT_EQ(world.run_in_random_order(call, random), "")
          << "ring " << ring << " count " << call.count;
    }
    EXPECT_GT(world.most_rounds(), 20u);
  }
}

TEST(Interpreter, RunsRanksAsThreadsThatSleepAtTheirDoors) {
  Random random(mix(test_seed(), 2));
  for (const Generator* generator : {&kDirect, &kRing, &kTree, &kRecursive, &kPairwise}) {
    World world(4, ring_bytes(4, 64));
    for_calls(*generator, 4, [&](WorldCall call) {
      call.count = 1 + random.below(kSanitized ? 300 : 1500);
      call.lend = random.below(2) == 0;
      ASSERT_EQ(world.run_in_threads(call), "")
          << generator->name << ' ' << name(call.collective.kind);
    });
  }
}

TEST(NetworkStreams, CarryEverythingInOrderThroughTinyRings) {
  Random random(mix(test_seed(), 3));
  for (const Generator* generator : {&kDirect, &kRing, &kPairwise}) {
    World world(3, ring_bytes(3, 128), World::Wire::kNetwork);
    for_calls(*generator, 3, [&](WorldCall call) {
      call.slice_bytes = 128;
      call.lend = random.below(2) == 0;
      call.count = 1 + random.below(kSanitized ? 400 : 3000);
      ASSERT_EQ(world.run_in_threads(call), "")
          << generator->name << ' ' << name(call.collective.kind);
    });
  }
}

TEST(NetworkStreams, AreServedBySeveralProxiesWhereLanesRingNoBell) {
  Random random(mix(test_seed(), 4));
  for (const int n : {2, 4}) {
    World world(n, ring_bytes(n, 256), World::Wire::kWatched);
    for_calls(kMultiConnection, n, [&](WorldCall call) {
      call.slice_bytes = 256;
      call.count = 1 + random.below(kSanitized ? 400 : 20000);
      ASSERT_EQ(world.run_in_threads(call), "") << name(call.collective.kind) << " ranks " << n;
    });
  }
}

TEST(Programs, SayWhichStepsHaveTheirFifosToThemselves) {
  const auto steps = [](const Generator& generator) {
    const Collective c{CollectiveKind::kAllReduce, 4, 0};
    return lower(verify(generator.make(c, false), false), 1).steps;
  };
  int shared = 0;
  for (const ProgramStep& step : steps(kDirect)) EXPECT_TRUE(step.only_sender);
  for (const ProgramStep& step : steps(kRing)) shared += step.only_sender ? 0 : 1;
  EXPECT_GT(shared, 2) << "a ring sends all it has to its neighbour";
}

TEST(NetworkStreams, OfEqualMessagesReadTheSameDataUntilTheSlowestHasSentIt) {
  Random random(mix(test_seed(), 5));
  for (const int n : {3, 4}) {
    World world(n, ring_bytes(n, 256), World::Wire::kWatched);
    for (const Generator* generator : {&kMultiConnection, &kDirect, &kOneRound, &kOneShot, &kTree})
      for_calls(*generator, n, [&](WorldCall call) {
        call.slice_bytes = 256;
        call.share_from = random.below(3) == 0 ? 1 : 256;  // the last slice may be shorter
        call.count = 1 + random.below(kSanitized ? 400 : 8000);
        ASSERT_EQ(world.run_in_threads(call), "")
            << generator->name << ' ' << name(call.collective.kind) << " ranks " << n << " count "
            << call.count;
      });
  }
}

// A sender and a receiver of one message.
class Pair : public testing::Test {
 protected:
  Pair() {
    const VerifiedSchedule verified =
        verify(kSendRecv.make({CollectiveKind::kSendRecv, 2, 0}, false), false);
    send_.operation.sends = &send_port_;
    receive_.operation.receives = &receive_port_;
    for (Side* side : {&send_, &receive_}) {
      side->program = lower(verified, side == &send_ ? 0 : 1);
      Operation& op = side->operation;
      op.program = side->program.view();
      op.count = op.stride = op.chunk = op.slice = 16;
      op.iterations = 1;
      op.element = sizeof(int32_t);
      op.reduction.type = ncclInt32;
      op.collective = static_cast<uint8_t>(CollectiveKind::kSendRecv);
      op.progress = &side->progress;
      op.input = op.output = reinterpret_cast<std::byte*>(side->data);
    }
    for (int i = 0; i < 16; i++) send_.data[i] = i + 100;
    port_out_.control = port_in_.control = reinterpret_cast<FifoControl*>(memory_.data());
    port_out_.data = port_in_.data = memory_.data() + 4096;
    port_out_.size = port_in_.size = 512;
    port_out_.peer = 1;
    port_in_.peer = 0;
  }

  struct Side {
    Program program;
    Operation operation;
    LaneState lane;
    uint64_t progress = 0;
    int32_t data[16] = {};
  };
  static Advance advance(Side& side) {
    host::HostTarget target;
    return Interpreter<host::HostTarget>(side.operation, target).advance(side.lane);
  }

  Mapping memory_ = Mapping::anonymous(8192);
  SendPort port_out_;
  RecvPort port_in_;
  SendPort* send_port_ = &port_out_;
  RecvPort* receive_port_ = &port_in_;
  Side send_, receive_;
};

TEST_F(Pair, BlocksUntilTheMessageIsThereAndSaysForWhom) {
  EXPECT_EQ(advance(receive_), Advance::kBlocked);
  EXPECT_EQ(receive_.lane.waits_for, 0);
  EXPECT_FALSE(receive_.lane.waits_to_send);
  EXPECT_EQ(advance(send_), Advance::kAgain);
  EXPECT_EQ(advance(send_), Advance::kDone);
  EXPECT_EQ(advance(receive_), Advance::kAgain);
  EXPECT_EQ(advance(receive_), Advance::kDone);
  EXPECT_EQ(receive_.data[15], 115);
}

TEST_F(Pair, BlocksWhileTheRingIsFullAndSaysForWhom) {
  for (int i = 0; i < 4; i++) {  // a message takes 128 of 512 bytes
    send_.lane = {};
    EXPECT_EQ(advance(send_), Advance::kAgain);
  }
  send_.lane = {};
  EXPECT_EQ(advance(send_), Advance::kBlocked);
  EXPECT_EQ(send_.lane.waits_for, 1);
  EXPECT_TRUE(send_.lane.waits_to_send);
  EXPECT_EQ(advance(receive_), Advance::kAgain);
  EXPECT_EQ(advance(send_), Advance::kAgain);
}

TEST_F(Pair, IsDoneOnlyWhenWhatItLentHasBeenRead) {
  port_out_.lending = Lending::kPointer;
  send_.operation.lend_from = 1;
  EXPECT_EQ(advance(send_), Advance::kAgain);
  EXPECT_EQ(advance(send_), Advance::kBlocked);
  EXPECT_EQ(send_.lane.waits_for, 1);
  send_.data[3] = 77;  // not a copy: the receiver reads the sender's memory when it reads
  EXPECT_EQ(advance(receive_), Advance::kAgain);
  EXPECT_EQ(receive_.data[3], 77);
  EXPECT_EQ(advance(send_), Advance::kDone);
}

TEST_F(Pair, DoesNotTouchLentDataOfASenderThatGaveUp) {
  port_out_.lending = Lending::kPointer;
  send_.operation.lend_from = 1;
  EXPECT_EQ(advance(send_), Advance::kAgain);
  port_out_.control->closed = 1;
  EXPECT_EQ(advance(receive_), Advance::kFailed);
  EXPECT_EQ(receive_.lane.failure, LaneState::Failure::kClosed);
  EXPECT_EQ(receive_.lane.waits_for, 0);
}

TEST_F(Pair, RefusesSegmentsItCannotMap) {
  port_out_.lending = Lending::kSegment;
  send_.operation.lend_from = 1;
  send_.operation.input_segment = 9;
  EXPECT_EQ(advance(send_), Advance::kAgain);
  EXPECT_EQ(advance(receive_), Advance::kFailed);
  EXPECT_EQ(receive_.lane.failure, LaneState::Failure::kNoSegment);
  EXPECT_EQ(receive_.lane.seen.segment, 9u);
}

TEST_F(Pair, RefusesAMessageOfAnotherCall) {
  const auto refused = [&](auto change) {
    const Operation saved = send_.operation;
    change(send_.operation);
    send_.lane = {};
    port_out_.tail = port_out_.at = port_out_.head_seen = 0;
    port_in_.head = port_in_.at = port_in_.tail_seen = 0;
    *port_out_.control = {};
    EXPECT_EQ(advance(send_), Advance::kAgain);
    send_.operation = saved;
    receive_.lane = {};
    const Advance outcome = advance(receive_);
    return outcome == Advance::kFailed && receive_.lane.failure == LaneState::Failure::kMismatch &&
           receive_.lane.waits_for == 0;
  };
  EXPECT_FALSE(refused([](Operation&) {}));
  EXPECT_TRUE(refused([](Operation& op) { op.sequence++; }));
  EXPECT_TRUE(refused([](Operation& op) { op.root++; }));
  EXPECT_TRUE(refused([](Operation& op) { op.collective = 0; }));
  EXPECT_TRUE(refused([](Operation& op) { op.count = op.chunk = op.slice = 15; }));
  EXPECT_TRUE(refused([](Operation& op) { op.reduction.type = ncclFloat32; }));
  send_.operation.collective = receive_.operation.collective =
      static_cast<uint8_t>(CollectiveKind::kAllReduce);
  EXPECT_TRUE(refused([](Operation& op) { op.reduction.type = ncclFloat32; }));
  EXPECT_TRUE(refused([](Operation& op) { op.reduction.op = ncclMax; }));
}

}  // namespace
}  // namespace weft::test
