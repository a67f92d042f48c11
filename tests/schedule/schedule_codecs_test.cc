// Codecs in schedules: files carry them, and proofs refuse what would give ranks different bits.
#include <gtest/gtest.h>

#include "algorithms/generators/coded.h"
#include "src/base/error.h"
#include "src/schedule/lower.h"
#include "src/schedule/msccl_xml.h"
#include "src/schedule/schedule_bytes.h"
#include "src/schedule/schedule_json.h"

namespace weft::test {
namespace {

Schedule coded(CollectiveKind kind, std::vector<int> hosts, const char* spec) {
  return make_coded({kind, static_cast<int>(hosts.size()), 0}, hosts, parse_codec_spec(spec));
}

// Two ranks swap their inputs and sum them.
Schedule swap() {
  Schedule s;
  s.name = "swap";
  s.collective = {CollectiveKind::kAllReduce, 2, 0};
  s.codecs = {parse_codec_spec("int8"), parse_codec_spec("widen")};
  s.ranks.resize(2);
  for (int r = 0; r < 2; r++) {
    RankSchedule& rank = s.ranks[static_cast<size_t>(r)];
    rank.lanes.resize(1);
    rank.scratch_chunks = 1;
    const Operand mine = Operand::scratch(0), theirs = Operand::peer(1 - r).coded(1);
    rank.lanes[0].steps = {
        {{Operand::input(0)}, {mine.coded(1), theirs}},
        {r == 0 ? std::vector{mine, theirs} : std::vector{theirs, mine}, {Operand::output(0)}}};
  }
  return s;
}

std::string refusal(const Schedule& schedule) {
  try {
    verify(schedule, false);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool says(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST(ScheduleCodecs, FilesKeepThem) {
  for (const char* spec : {"int8", "topk:block=64:density=0.015625", "widen"}) {
    ScheduleFile file;
    file.schedule = coded(CollectiveKind::kAllReduce, {0, 0, 1, 1, 2}, spec);
    EXPECT_EQ(read_schedule_json(write_schedule_json(file), "text"), file) << spec;
    EXPECT_EQ(read_schedule_bytes(write_schedule_bytes(file), "bytes"), file) << spec;
  }
}

TEST(ScheduleCodecs, MscclXmlRefusesThem) {
  ScheduleFile file;
  file.schedule = swap();
  try {
    write_msccl_xml(file);
    FAIL() << "it was written";
  } catch (const Error& error) {
    EXPECT_TRUE(says(error.what(), "it has codecs")) << error.what();
  }
}

TEST(ScheduleCodecs, BadOnesInFilesAreRefused) {
  ScheduleFile file;
  file.schedule = swap();
  const std::string good = write_schedule_json(file);
  for (const char* bad : {"int9", "int8:block=0", "topk:density=2"}) {
    std::string text = good;
    text.replace(text.find("int8:block=256"), 14, bad);
    EXPECT_THROW(read_schedule_json(text, "text"), Error) << bad;
  }
  file.schedule.codecs[0].block = 3;
  EXPECT_THROW(read_schedule_bytes(write_schedule_bytes(file), "bytes"), Error);
  EXPECT_TRUE(says(refusal(file.schedule), "power of two"));
}

TEST(ScheduleCodecs, ASwapIsProvedAndItsStepsAreNotLent) {
  const VerifiedSchedule verified = verify(swap(), false);
  EXPECT_EQ(verified.passes(), 1);
  EXPECT_EQ(verified.facts(0, 0, 0).passes, 0);
  EXPECT_EQ(verified.facts(0, 0, 1).passes, 1);
  const Program program = lower(verified, 0);
  EXPECT_TRUE(program.steps[0].coded && !program.steps[0].lendable);
}

TEST(ScheduleCodecs, BothEndsMustNameTheSame) {
  Schedule s = swap();
  s.ranks[1].lanes[0].steps[1].from[0].codec = 0;
  EXPECT_TRUE(says(refusal(s), "receives with codec 0 what rank 0 sent with codec 1"))
      << refusal(s);
}

TEST(ScheduleCodecs, ARankThatSumsWhatOthersDoNotSeeIsFound) {
  Schedule s = swap();
  s.ranks[0].lanes[0].steps[0].to[0].codec = 0;
  EXPECT_TRUE(says(refusal(s), "may differ from that of rank 0")) << refusal(s);
}

TEST(ScheduleCodecs, SumsInAnotherOrderAreFound) {
  Schedule s = swap();
  std::swap(s.ranks[0].lanes[0].steps[1].from[0], s.ranks[0].lanes[0].steps[1].from[1]);
  EXPECT_TRUE(says(refusal(s), "may differ")) << refusal(s);
  // Without codecs the order is the author's affair.
  s.codecs.clear();
  for (RankSchedule& rank : s.ranks)
    for (Step& step : rank.lanes[0].steps)
      for (auto* operands : {&step.from, &step.to})
        for (Operand& operand : *operands) operand.codec = 0;
  EXPECT_EQ(refusal(s), "");
}

TEST(ScheduleCodecs, WideSumsFitIntoMessagesOnly) {
  Schedule s = swap();
  s.ranks[0].lanes[0].steps[0].to[0].codec = 2;
  EXPECT_TRUE(says(refusal(s), "has codec widen")) << refusal(s);
}

// Kernels have the codecs of as many destinations.
TEST(ScheduleCodecs, AStepHasAtMost64Destinations) {
  Schedule s = swap();
  s.ranks[0].scratch_chunks = 65;
  std::vector<Operand>& to = s.ranks[0].lanes[0].steps[0].to;
  while (to.size() < 64) to.push_back(Operand::scratch(static_cast<int32_t>(to.size())).coded(1));
  EXPECT_EQ(refusal(s), "");
  to.push_back(Operand::scratch(64).coded(1));
  EXPECT_TRUE(says(refusal(s), "65 destinations, at most 64 fit")) << refusal(s);
}

TEST(ScheduleCodecs, UnknownNumbersAndPeerMemoryAreRefused) {
  Schedule s = swap();
  s.ranks[0].lanes[0].steps[0].to[1].codec = 3;
  EXPECT_TRUE(says(refusal(s), "codec 3 of 2")) << refusal(s);
  s = swap();
  s.ranks[0].lanes[0].steps[0].to[0] = Operand::remote(1, Buffer::kScratch, 0).coded(1);
  EXPECT_NE(refusal(s), "");
}

}  // namespace
}  // namespace weft::test
