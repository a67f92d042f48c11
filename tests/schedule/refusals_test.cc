// Schedules that verify() refuses. Its text says where and why.
#include <gtest/gtest.h>

#include "algorithms/generators/building.h"
#include "src/base/error.h"
#include "src/schedule/verify.h"

namespace weft::test {
namespace {

constexpr Collective kBroadcast{CollectiveKind::kBroadcast, 2, 0};
constexpr Collective kAllReduce{CollectiveKind::kAllReduce, 2, 0};
constexpr Collective kAllGather{CollectiveKind::kAllGather, 2, 0};

Lane& lane(Schedule& s, int rank, int number = 0) {
  return s.ranks[static_cast<size_t>(rank)].lanes[static_cast<size_t>(number)];
}

// The text of verify() without the schedule's name. "" when it accepts.
std::string refusal(const Schedule& schedule, bool in_place = false, int depth = 2) {
  try {
    verify(schedule, in_place, depth);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ncclInvalidUsage);
    const std::string text = error.what(), mark = " refused: ";
    EXPECT_EQ(text.find("schedule 'test' ("), 0u) << text;
    return text.substr(text.find(mark) + mark.size());
  }
  return {};
}

// A correct schedule: rank 0 sends its input to rank 1, and both keep it.
Schedule broadcast(int lanes = 1) {
  Schedule s = blank("test", kBroadcast, 1, lanes);
  add(lane(s, 0), {Operand::input(0)}, {Operand::output(0), Operand::peer(1)});
  add(lane(s, 1), {Operand::peer(0)}, {Operand::output(0)});
  return s;
}

// A correct schedule: both ranks exchange their inputs and add them up.
Schedule all_reduce() {
  Schedule s = blank("test", kAllReduce, 1, 1);
  for (int r = 0; r < 2; r++) {
    add(lane(s, r), {Operand::input(0)}, {Operand::peer(1 - r)});
    add(lane(s, r), {Operand::input(0), Operand::peer(1 - r)}, {Operand::output(0)});
  }
  return s;
}

TEST(Verify, AcceptsWhatIsRight) {
  EXPECT_EQ(refusal(broadcast()), "");
  EXPECT_EQ(refusal(all_reduce()), "");
  EXPECT_EQ(refusal(all_reduce(), true), "");
}

TEST(Verify, RefusesAReceiveWithoutASend) {
  Schedule s = broadcast();
  lane(s, 0).steps[0].to.pop_back();
  EXPECT_EQ(refusal(s),
            "rank 1 lane 0 step 0 (output chunk 0) never runs: it waits for a message from rank 0 "
            "(at any "
            "FIFO depth)");
}

TEST(Verify, RefusesASendWithoutAReceive) {
  Schedule s = broadcast();
  add(lane(s, 1), {Operand::output(0)}, {Operand::peer(0)});
  EXPECT_EQ(refusal(s),
            "rank 1 lane 0 step 1 (output chunk 0) sends to rank 0, which never receives it");
}

TEST(Verify, RefusesRanksThatWaitForEachOther) {
  Schedule s = all_reduce();
  for (int r = 0; r < 2; r++) std::swap(lane(s, r).steps[0], lane(s, r).steps[1]);
  EXPECT_EQ(refusal(s),
            "rank 0 lane 0 step 0 (output chunk 0) never runs: it waits for a message from rank 1 "
            "(at any "
            "FIFO depth)");
}

TEST(Verify, RefusesLanesThatWaitForEachOther) {
  Schedule s = broadcast(2);
  lane(s, 0).steps[0].after = {{1, 0}};
  add(lane(s, 0, 1), {}, {}, 1, {{0, 0}});
  EXPECT_EQ(refusal(s),
            "rank 0 lane 0 step 0 (output chunk 0) never runs: it waits for lane 1 step 0 (at any "
            "FIFO depth)");
}

TEST(Verify, RefusesWhatNeedsMoreRoomThanAFifoHas) {
  Schedule s = blank("test", kAllGather, 2, 1);
  for (int r = 0; r < 2; r++) {
    for (int c = 0; c < 2; c++)
      add(lane(s, r), {Operand::input(c)}, {Operand::output(2 * r + c), Operand::peer(1 - r)});
    for (int c = 0; c < 2; c++)
      add(lane(s, r), {Operand::peer(1 - r)}, {Operand::output(2 * (1 - r) + c)});
  }
  EXPECT_EQ(refusal(s, false, 2), "");
  EXPECT_EQ(refusal(s, false, 1),
            "rank 0 lane 0 step 1 (output chunk 1) never runs: the FIFO to rank 1 stays full (FIFO "
            "depth 1; "
            "depth 2 works)");
}

TEST(Verify, RefusesLanesThatTouchAChunkInAnyOrder) {
  Schedule s = broadcast(2);
  s.ranks[0].scratch_chunks = 1;
  add(lane(s, 0, 1), {Operand::input(0)}, {Operand::output(0)});
  EXPECT_EQ(refusal(s),
            "rank 0 lane 0 step 0 and rank 0 lane 1 step 0 touch the same chunk (output chunk 0 of "
            "rank 0) and nothing orders them");
  lane(s, 0, 1).steps[0].after = {{0, 0}};
  EXPECT_EQ(refusal(s), "");
}

TEST(Verify, LetsAMessageThereAndBackOrderTwoLanes) {
  Schedule s = broadcast(2);
  add(lane(s, 0, 1), {Operand::input(0)}, {Operand::output(0)});
  EXPECT_NE(refusal(s), "");
  lane(s, 0, 1).steps.clear();
  add(lane(s, 1), {Operand::output(0)}, {Operand::peer(0)});
  add(lane(s, 0, 1), {Operand::peer(1)}, {Operand::output(0)});
  EXPECT_EQ(refusal(s), "");
}

TEST(Verify, SeesThatBuffersOverlapInPlace) {
  // Out of place, rank 0 may send its input after it wrote its output. In place, the input is gone.
  Schedule s = blank("test", kAllReduce, 1, 1);
  add(lane(s, 0), {Operand::input(0), Operand::peer(1)}, {Operand::output(0)});
  add(lane(s, 0), {Operand::input(0)}, {Operand::peer(1)});
  add(lane(s, 1), {Operand::input(0)}, {Operand::peer(0)});
  add(lane(s, 1), {Operand::input(0), Operand::peer(0)}, {Operand::output(0)});
  EXPECT_EQ(refusal(s, false), "");
  EXPECT_EQ(
      refusal(s, true),
      "rank 1 lane 0 step 1 (output chunk 0) counts the contribution of rank 1 to piece 0 twice");
}

TEST(Verify, RefusesAContributionThatCountsTwice) {
  Schedule s = all_reduce();
  lane(s, 0).steps[1].from.push_back(Operand::input(0));
  EXPECT_EQ(
      refusal(s),
      "rank 0 lane 0 step 1 (output chunk 0) counts the contribution of rank 0 to piece 0 twice");
}

TEST(Verify, RefusesAContributionThatIsMissing) {
  Schedule s = all_reduce();
  lane(s, 0).steps[1].from = {Operand::peer(1)};
  EXPECT_EQ(refusal(s),
            "rank 0 output chunk 0 ends with the wrong contributions: rank 0 is missing");
}

TEST(Verify, RefusesThePieceOfAnotherPlace) {
  Schedule s = blank("test", kAllGather, 1, 1);
  for (int r = 0; r < 2; r++) {
    add(lane(s, r), {Operand::input(0)}, {Operand::output(1 - r), Operand::peer(1 - r)});
    add(lane(s, r), {Operand::peer(1 - r)}, {Operand::output(r)});
  }
  EXPECT_EQ(refusal(s), "rank 0 output chunk 0 ends with piece 1, it should hold piece 0");
}

TEST(Verify, RefusesAnOutputThatIsNeverWritten) {
  Schedule s = broadcast();
  lane(s, 1).steps[0].to = {Operand::scratch(0)};
  s.ranks[1].scratch_chunks = 1;
  EXPECT_EQ(refusal(s), "rank 1 output chunk 0 is never written");
}

TEST(Verify, RefusesToReadWhatNobodyWrote) {
  Schedule s = broadcast();
  s.ranks[0].scratch_chunks = 1;
  lane(s, 0).steps[0].from = {Operand::scratch(0)};
  EXPECT_EQ(refusal(s), "rank 0 lane 0 step 0 reads scratch chunk 0, which holds nothing yet");
}

TEST(Verify, RefusesToReduceDifferentPieces) {
  Schedule s = blank("test", {CollectiveKind::kReduceScatter, 2, 0}, 1, 1);
  for (int r = 0; r < 2; r++) {
    add(lane(s, r), {Operand::input(r)}, {Operand::peer(1 - r)});
    add(lane(s, r), {Operand::input(r), Operand::peer(1 - r)}, {Operand::output(0)});
  }
  EXPECT_EQ(refusal(s),
            "rank 1 lane 0 step 1 (output chunk 0) reduces piece 1 with piece 0, which are "
            "different data");
}

TEST(Verify, RefusesMessagesOfAnotherLengthThanExpected) {
  Schedule s = blank("test", kBroadcast, 2, 1);
  add(lane(s, 0), {Operand::input(0)}, {Operand::output(0), Operand::peer(1)}, 2);
  add(lane(s, 1), {Operand::peer(0)}, {Operand::output(0)}, 1);
  add(lane(s, 1), {Operand::peer(0)}, {Operand::output(1)}, 1);
  EXPECT_EQ(refusal(s), "rank 1 lane 0 step 0 receives 1 chunks, but rank 0 lane 0 step 0 sent 2");
}

TEST(Verify, RefusesChunksOutsideABuffer) {
  Schedule s = broadcast();
  lane(s, 0).steps[0].from = {Operand::input(1)};
  EXPECT_EQ(refusal(s),
            "rank 0 lane 0 step 0: input chunk 1 (count 1) is outside a buffer of 1 chunks");
  s = broadcast();
  lane(s, 1).steps[0].to = {Operand::output(-1)};
  EXPECT_EQ(refusal(s),
            "rank 1 lane 0 step 0: output chunk -1 (count 1) is outside a buffer of 1 chunks");
  s = broadcast();
  lane(s, 1).steps[0].count = 2;
  EXPECT_EQ(refusal(s),
            "rank 1 lane 0 step 0: output chunk 0 (count 2) is outside a buffer of 1 chunks");
  s = broadcast();
  add(lane(s, 1), {Operand::input(0)}, {Operand::output(0)});  // only the root has an input
  EXPECT_EQ(refusal(s),
            "rank 1 lane 0 step 1: input chunk 0 (count 1) is outside a buffer of 0 chunks");
}

TEST(Verify, RefusesTwoLanesOnOneFifo) {
  Schedule s = broadcast(2);
  add(lane(s, 0, 1), {Operand::input(0)}, {Operand::peer(1)});
  EXPECT_EQ(refusal(s), "rank 0 lane 1 step 0: lane 0 sends to peer 1 on channel 0 already");
  s = broadcast(2);
  add(lane(s, 1, 1), {Operand::peer(0)}, {Operand::output(0)});
  EXPECT_EQ(refusal(s), "rank 1 lane 1 step 0: lane 0 receives from peer 0 on channel 0 already");
}

TEST(Verify, RefusesAFifoTwiceInOneStep) {
  Schedule s = all_reduce();
  lane(s, 0).steps[1].from.push_back(Operand::peer(1));
  EXPECT_EQ(refusal(s), "rank 0 lane 0 step 1: receives from peer 1 on channel 0 twice");
  s = broadcast();
  lane(s, 0).steps[0].to.push_back(Operand::peer(1));
  EXPECT_EQ(refusal(s), "rank 0 lane 0 step 0: sends to peer 1 on channel 0 twice");
}

TEST(Verify, RefusesChunksThatOverlapShifted) {
  // Executors go chunk by chunk. The first chunk's result would overwrite the second's source.
  Schedule s = blank("test", {CollectiveKind::kBroadcast, 1, 0}, 3, 1);
  s.ranks[0].scratch_chunks = 3;
  add(lane(s, 0), {Operand::input(0)}, {Operand::scratch(0)}, 3);
  add(lane(s, 0), {Operand::scratch(0)}, {Operand::scratch(1)}, 2);
  add(lane(s, 0), {Operand::input(0)}, {Operand::output(0)}, 3);
  EXPECT_EQ(
      refusal(s),
      "rank 0 lane 0 step 1: scratch chunk 1 (count 2) overlaps another of its operands partly");
  lane(s, 0).steps[1] = {{Operand::input(0)}, {Operand::scratch(0), Operand::scratch(1)}, 2, {}};
  EXPECT_EQ(
      refusal(s),
      "rank 0 lane 0 step 1: scratch chunk 1 (count 2) overlaps another of its operands partly");
  lane(s, 0).steps[1] = {{Operand::scratch(0)}, {Operand::scratch(0)}, 3, {}};
  EXPECT_EQ(refusal(s), "");
}

TEST(Verify, RefusesMessagesOfWhichOnlyAPartIsRawOrComplete) {
  // A pre-multiplier (or an average's divisor) applies to all chunks of a step or to none.
  Schedule s = blank("test", kAllReduce, 2, 1);
  for (int r = 0; r < 2; r++) {
    s.ranks[static_cast<size_t>(r)].scratch_chunks = 2;
    add(lane(s, r), {Operand::input(0)}, {Operand::peer(1 - r)});
    add(lane(s, r), {Operand::input(0), Operand::peer(1 - r)}, {Operand::scratch(0)});
    add(lane(s, r), {Operand::input(1)}, {Operand::peer(1 - r)});
    add(lane(s, r), {Operand::input(1), Operand::peer(1 - r)}, {Operand::scratch(1)});
    add(lane(s, r), {Operand::scratch(0)}, {Operand::output(0)}, 2);
  }
  EXPECT_EQ(refusal(s), "");
  Schedule mixed = blank("test", kAllReduce, 2, 1);
  for (int r = 0; r < 2; r++) {
    auto& mine = lane(mixed, r);
    add(mine, {Operand::input(0)}, {Operand::output(0)});
    add(mine, {Operand::input(0)}, {Operand::peer(1 - r)}, 2);
    add(mine, {Operand::output(0), Operand::peer(1 - r)}, {Operand::output(0)}, 2);
  }
  // In place, output chunk 0 has been written and chunk 1 is still the input.
  EXPECT_EQ(refusal(mixed, true),
            "rank 0 lane 0 step 1 (input chunk 0): source 0 holds inputs as given beside chunks "
            "that are not; one "
            "step takes only one "
            "kind");
}

TEST(Verify, NamesTheStepThatHoldsUpTheOthersNotTheFirstThatWaits) {
  // Rank 2 never sends. So rank 1 cannot send, and rank 0 waits.
  Schedule s = blank("test", {CollectiveKind::kBroadcast, 3, 2}, 1, 1);
  add(lane(s, 0), {Operand::peer(1)}, {Operand::output(0)});
  add(lane(s, 1), {Operand::peer(2)}, {Operand::output(0), Operand::peer(0)});
  add(lane(s, 2), {Operand::input(0)}, {Operand::output(0)});
  EXPECT_EQ(refusal(s),
            "rank 1 lane 0 step 0 (output chunk 0) never runs: it waits for a message from rank 2 "
            "(at any FIFO depth)");
}

// Both ranks send all their chunks before they receive any, so FIFOs must hold all chunks.
Schedule eager(int chunks) {
  Schedule s = blank("test", kAllGather, chunks, 1);
  for (int r = 0; r < 2; r++) {
    for (int c = 0; c < chunks; c++)
      add(lane(s, r), {Operand::input(c)}, {Operand::output(chunks * r + c), Operand::peer(1 - r)});
    for (int c = 0; c < chunks; c++)
      add(lane(s, r), {Operand::peer(1 - r)}, {Operand::output(chunks * (1 - r) + c)});
  }
  return s;
}

TEST(Verify, FindsTheLeastFifoDepthThatWorks) {
  for (const int chunks : {1, 2, 3, 4, 5, 7, 8, 9, 16, 33, 100}) {
    EXPECT_EQ(verify(eager(chunks), false, chunks).least_fifo_depth(), chunks);
    EXPECT_EQ(verify(eager(chunks), false, 2 * chunks).least_fifo_depth(), chunks);
    if (chunks > 1) {
      EXPECT_NE(refusal(eager(chunks), false, chunks - 1)
                    .find(fmt::format("(FIFO depth {}; depth {} works)", chunks - 1, chunks)),
                std::string::npos)
          << refusal(eager(chunks), false, chunks - 1);
    }
  }
}

TEST(Verify, RefusesToWriteTheCallersInput) {
  Schedule s = all_reduce();
  add(lane(s, 0), {Operand::output(0)}, {Operand::input(0)});
  EXPECT_EQ(refusal(s),
            "rank 0 lane 0 step 2: writes input chunk 0, but an input that is no output belongs to "
            "the caller");
  EXPECT_EQ(refusal(s, true), "");  // in place the input is the output
}

TEST(Verify, TakesACopyOfAChunkOntoItselfForNoWrite) {
  // In place, both ranks' inputs are already in their outputs.
  Schedule s = blank("test", kAllGather, 1, 2);
  for (int r = 0; r < 2; r++) {
    add(lane(s, r), {Operand::output(r)}, {Operand::peer(1 - r)});
    add(lane(s, r), {Operand::peer(1 - r)}, {Operand::output(1 - r)});
    add(lane(s, r, 1), {Operand::input(0)}, {Operand::output(r)});
  }
  EXPECT_EQ(refusal(s, true), "");
  EXPECT_NE(refusal(s, false), "");
}

TEST(Verify, RefusesToReduceWhereTheCollectiveDoesNot) {
  Schedule s = broadcast();
  lane(s, 0).steps[0].from = {Operand::input(0), Operand::input(0)};
  EXPECT_EQ(refusal(s), "rank 0 lane 0 step 0: reduces, but broadcast does not");
}

TEST(Verify, RefusesWhatIsTooLargeToProveBeforeItAllocatesForIt) {
  Schedule s = broadcast();
  s.chunks = 1'000'000'000;
  EXPECT_NE(refusal(s).find("too many to prove"), std::string::npos) << refusal(s);
  s = broadcast();
  s.ranks[0].scratch_chunks = 2'000'000'000;
  EXPECT_NE(refusal(s).find("too many to prove"), std::string::npos) << refusal(s);
  s = broadcast();
  s.chunks = 1 << 20;
  for (int i = 0; i < 200; i++) add(lane(s, 0), {Operand::input(0)}, {Operand::output(0)}, 1 << 20);
  EXPECT_NE(refusal(s).find("too many to prove"), std::string::npos) << refusal(s);
}

TEST(Verify, RefusesDependenciesThatDoNotExist) {
  for (const Dependency d :
       {Dependency{1, 0}, Dependency{0, 1}, Dependency{-1, 0}, Dependency{0, -1}}) {
    Schedule s = broadcast();
    lane(s, 1).steps[0].after = {d};
    EXPECT_EQ(refusal(s),
              fmt::format("rank 1 lane 0 step 0: depends on lane {} step {}, which does not exist",
                          d.lane, d.step));
  }
}

TEST(Verify, RefusesPeersThatDoNotExist) {
  for (const int peer : {-1, 0, 2}) {
    Schedule s = broadcast();
    lane(s, 0).steps[0].to[1] = Operand::peer(peer);
    EXPECT_EQ(refusal(s), fmt::format("rank 0 lane 0 step 0: peer {} of 2 ranks", peer));
  }
}

TEST(Verify, RefusesStepsThatOnlyReadOrOnlyWrite) {
  Schedule s = broadcast();
  add(lane(s, 0), {Operand::input(0)}, {});
  EXPECT_EQ(refusal(s), "rank 0 lane 0 step 1: has 1 sources but 0 destinations");
}

TEST(Verify, RefusesMoreOperandsThanAStepHolds) {
  Schedule s = blank("test", {CollectiveKind::kBroadcast, 1, 0}, 1, 1);
  add(lane(s, 0), {Operand::input(0)}, {Operand::output(0)});
  add(lane(s, 0), Operands(65, Operand::input(0)), {Operand::output(0)});
  EXPECT_EQ(refusal(s), "rank 0 lane 0 step 1: 65 sources, at most 64 fit in one step");
}

TEST(Verify, RefusesPartsForAnotherNumberOfRanks) {
  Schedule s = broadcast();
  s.ranks.emplace_back();
  EXPECT_EQ(refusal(s), "schedule test: has parts for 3 ranks, its collective has 2");
  s = broadcast();
  s.chunks = 0;
  EXPECT_EQ(refusal(s), "schedule test: 0 chunks per block");
}

// A correct schedule: a CPU node adds both inputs and sends the sum to both ranks.
Schedule reduced_by_cpu() {
  Schedule s = blank("test", kAllReduce, 1, 2);
  s.cpu_nodes = 1;
  s.ranks.emplace_back().lanes.resize(1);
  for (int r = 0; r < 2; r++) {
    add(lane(s, r, 0), {Operand::input(0)}, {Operand::peer(2)});
    add(lane(s, r, 1), {Operand::peer(2)}, {Operand::output(0)});
  }
  add(lane(s, 2), {Operand::peer(0), Operand::peer(1)}, {Operand::peer(0), Operand::peer(1)});
  return s;
}

TEST(Verify, KnowsCpuNodesWhichHaveNoBuffersOfTheCaller) {
  EXPECT_EQ(refusal(reduced_by_cpu()), "");
  EXPECT_EQ(refusal(reduced_by_cpu(), true), "");
  Schedule s = reduced_by_cpu();
  lane(s, 2).steps[0].to.push_back(Operand::output(0));
  EXPECT_EQ(refusal(s),
            "rank 2 lane 0 step 0: output chunk 0 (count 1) is outside a buffer of 0 chunks");
  s = reduced_by_cpu();
  lane(s, 2).steps[0].to.push_back(Operand::scratch(0));
  EXPECT_NE(refusal(s), "");
  s.ranks[2].scratch_chunks = 1;
  EXPECT_EQ(refusal(s), "");
  s = reduced_by_cpu();
  lane(s, 2).steps[0].from.pop_back();
  EXPECT_NE(refusal(s), "") << "the sum lacks a rank";
  s = reduced_by_cpu();
  s.ranks[2].scratch_chunks = 1;
  add(lane(s, 0, 0), {Operand::input(0)}, {Operand::remote(2, Buffer::kScratch, 0)});
  EXPECT_EQ(refusal(s), "rank 0 lane 0 step 1: reaches into rank 2");
  s = reduced_by_cpu();
  s.cpu_nodes = 0;
  EXPECT_EQ(refusal(s), "schedule test: has parts for 3 ranks, its collective has 2");
  s.cpu_nodes = kMostCpuNodes + 1;
  EXPECT_EQ(refusal(s), "schedule test: 9 CPU nodes, at most 8 are possible");
}

}  // namespace
}  // namespace weft::test
