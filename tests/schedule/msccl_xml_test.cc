// MSCCL XML: every step type and both dialects are read right, and written as the runtimes want.
#include "src/schedule/msccl_xml.h"

#include <gtest/gtest.h>

#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"
#include "src/base/error.h"

namespace weft::test {
namespace {

constexpr const char* kAzureTail =
    " coll=\"allreduce\" inplace=\"1\" outofplace=\"0\" minBytes=\"16\" maxBytes=\"4096\"";

// A file of two ranks. Rank 0 has the given thread blocks, rank 1 has one empty block.
std::string two_ranks(const std::string& blocks, const std::string& tail = kAzureTail) {
  return "<algo name=\"test\" proto=\"LL\" nchannels=\"1\" nchunksperloop=\"4\" ngpus=\"2\"" +
         tail + ">\n<gpu id=\"0\" i_chunks=\"4\" o_chunks=\"4\" s_chunks=\"3\">\n" + blocks +
         "\n</gpu>\n<gpu id=\"1\" i_chunks=\"4\" o_chunks=\"4\" s_chunks=\"0\">"
         "<tb id=\"0\" send=\"-1\" recv=\"-1\" chan=\"0\"></tb></gpu></algo>";
}

std::string step(int s, const std::string& type, const std::string& src, int srcoff,
                 const std::string& dst, int dstoff, int cnt, int depid = -1, int deps = -1) {
  return fmt::format(
      "<step s=\"{}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" dstoff=\"{}\" "
      "cnt=\"{}\" depid=\"{}\" deps=\"{}\" hasdep=\"0\"/>",
      s, type, src, srcoff, dst, dstoff, cnt, depid, deps);
}

std::string block(int id, const std::string& steps, int send = 1, int recv = 1, int chan = 0) {
  return fmt::format("<tb id=\"{}\" send=\"{}\" recv=\"{}\" chan=\"{}\">{}</tb>", id, send, recv,
                     chan, steps);
}

ScheduleFile read(const std::string& text) { return read_msccl_xml(text, "file"); }

// The reader's error, or "" if it accepts the text.
std::string xml_refusal(const std::string& text,
                        std::optional<CollectiveKind> collective = std::nullopt) {
  try {
    read_msccl_xml(text, "file", collective);
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return {};
}

std::string write_refusal(const Schedule& schedule, MscclDialect dialect = MscclDialect::kAzure) {
  ScheduleFile file;
  file.schedule = schedule;
  file.modes_declared = true;
  file.in_place = false;
  try {
    write_msccl_xml(file, dialect);
  } catch (const Error& error) {
    const std::string text = error.what(), mark = "cannot be written as MSCCL XML: ";
    return text.find(mark) == std::string::npos ? text : text.substr(text.find(mark) + mark.size());
  }
  return {};
}

TEST(MscclXml, GivesEveryStepTypeItsMeaning) {
  const Operand peer = Operand::peer(1, 5);
  const struct {
    const char* type;
    std::vector<Operand> from, to;
  } kTypes[] = {
      {"s", {Operand::input(1)}, {peer}},
      {"r", {peer}, {Operand::scratch(2)}},
      {"rcs", {peer}, {Operand::scratch(2), peer}},
      {"rrs", {peer, Operand::input(1)}, {peer}},
      {"rrc", {peer, Operand::input(1)}, {Operand::scratch(2)}},
      {"rrcs", {peer, Operand::input(1)}, {Operand::scratch(2), peer}},
      {"cpy", {Operand::input(1)}, {Operand::scratch(2)}},
      {"re", {Operand::scratch(2), Operand::input(1)}, {Operand::scratch(2)}},
      {"nop", {}, {}},
  };
  for (const auto& type : kTypes) {
    const ScheduleFile file =
        read(two_ranks(block(0, step(0, type.type, "i", 1, "s", 2, 1), 1, 1, 5)));
    const Step& read_step = file.schedule.ranks[0].lanes[0].steps[0];
    EXPECT_EQ(read_step.from, type.from) << type.type;
    EXPECT_EQ(read_step.to, type.to) << type.type;
    EXPECT_EQ(read(write_msccl_xml(file)), file) << type.type;
  }
}

TEST(MscclXml, KeepsWhatSelectsAFile) {
  const ScheduleFile file = read(two_ranks(""));
  EXPECT_EQ(file.schedule.name, "test");
  EXPECT_EQ(file.schedule.collective, (Collective{CollectiveKind::kAllReduce, 2, 0}));
  EXPECT_EQ(file.schedule.chunks, 4);
  EXPECT_EQ(file.schedule.ranks[0].scratch_chunks, 3);
  EXPECT_EQ(file.protocol, "LL");
  EXPECT_EQ(file.min_bytes, 16u);
  EXPECT_EQ(file.max_bytes, 4096u);
  EXPECT_TRUE(file.in_place);
  EXPECT_FALSE(file.out_of_place);
  EXPECT_TRUE(file.modes_declared);
}

TEST(MscclXml, TakesTheOneModeOfALegacyFileAndNoLimitsWhereItHasNone) {
  for (const bool in_place : {false, true}) {
    const ScheduleFile file =
        read(two_ranks("", fmt::format(" coll=\"allreduce\" inplace=\"{:d}\"", in_place)));
    EXPECT_EQ(file.in_place, in_place);
    EXPECT_EQ(file.out_of_place, !in_place);
    EXPECT_EQ(file.min_bytes, 0u);
    EXPECT_EQ(file.max_bytes, ScheduleFile::kNoLimit);
  }
  EXPECT_EQ(read(two_ranks("", " coll=\"allreduce\" inplace=\"1\" outofplace=\"1\" maxBytes=\"0\""))
                .max_bytes,
            ScheduleFile::kNoLimit);
  EXPECT_FALSE(read(two_ranks("", " coll=\"allreduce\"")).modes_declared);
}

TEST(MscclXml, CutsBlocksAsTheCollectiveCountsItsChunks) {
  const auto chunks = [](const std::string& coll) {
    return read("<algo ngpus=\"2\" nchunksperloop=\"8\" coll=\"" + coll +
                "\"><gpu id=\"0\"/><gpu id=\"1\"/></algo>")
        .schedule.chunks;
  };
  for (const char* coll : {"allreduce", "reduce", "broadcast"}) EXPECT_EQ(chunks(coll), 8) << coll;
  for (const char* coll :
       {"allgather", "reducescatter", "reduce_scatter", "alltoall", "gather", "scatter"})
    EXPECT_EQ(chunks(coll), 4) << coll;
}

TEST(MscclXml, TurnsOldCopyElementsIntoALaneOfCopies) {
  const Schedule s =
      read(two_ranks("<copy i_off=\"1\" o_off=\"2\"/><copy i_off=\"0\" o_off=\"0\" cnt=\"2\"/>" +
                     block(0, step(0, "s", "i", 0, "o", 0, 1))))
          .schedule;
  ASSERT_EQ(s.ranks[0].lanes.size(), 2u);
  const std::vector<Step> copies = {{{Operand::input(1)}, {Operand::output(2)}, 1, {}},
                                    {{Operand::input(0)}, {Operand::output(0)}, 2, {}}};
  EXPECT_EQ(s.ranks[0].lanes[1].steps, copies);
}

TEST(MscclXml, ReadsBlocksAndStepsByTheirNumbersNotTheirOrder) {
  const std::string one = step(0, "s", "i", 0, "o", 0, 1), two = step(1, "s", "i", 1, "o", 0, 1);
  const auto other = block(1, step(0, "cpy", "i", 2, "o", 2, 1, 0, 1), -1, -1);
  EXPECT_EQ(read(two_ranks(other + block(0, two + one))),
            read(two_ranks(block(0, one + two) + other)));
}

TEST(MscclXml, GivesANopsDependencyToTheStepAfterItToo) {
  const std::string waits = step(0, "nop", "i", -1, "o", -1, 0, 1, 0);
  const std::string other = block(1, step(0, "cpy", "i", 2, "o", 2, 1), -1, -1);
  const Schedule s =
      read(two_ranks(block(0, waits + step(1, "s", "i", 0, "o", 0, 1)) + other)).schedule;
  const std::vector<Dependency> after = {{1, 0}};
  EXPECT_EQ(s.ranks[0].lanes[0].steps[0].after, after);
  EXPECT_EQ(s.ranks[0].lanes[0].steps[1].after, after);
}

TEST(MscclXml, ReadsPastCommentsDeclarationsAndForeignAttributes) {
  EXPECT_EQ(
      xml_refusal("<?xml version=\"1.0\"?>\n<!-- made by hand -->\n<!-- twice -->\n" +
                  two_ranks("<!-- here too -->" + block(0, "<!-- and here -->"),
                            " coll=\"allreduce\" inplace=\"1\" redop=\"nop\" nthreads=\"64\"")),
      "");
}

TEST(MscclXml, MeansTheOnlyBufferByTheInputOfARankThatHasNone) {
  const std::string text =
      "<algo ngpus=\"2\" nchunksperloop=\"1\" coll=\"broadcast\" inplace=\"1\" root=\"1\">"
      "<gpu id=\"0\"><tb id=\"0\" send=\"-1\" recv=\"1\" chan=\"0\">" +
      step(0, "r", "i", 0, "i", 0, 1) +
      "</tb></gpu><gpu id=\"1\"><tb id=\"0\" send=\"0\" recv=\"-1\" chan=\"0\">" +
      step(0, "s", "i", 0, "i", 0, 1) + "</tb></gpu></algo>";
  const ScheduleFile file = read(text);
  EXPECT_EQ(file.schedule.collective.root, 1);
  EXPECT_EQ(file.schedule.ranks[0].lanes[0].steps[0].to, Operands{Operand::output(0)});
  EXPECT_NE(prove(file, 1).in_place, nullptr);
  EXPECT_EQ(read(write_msccl_xml(file)), file);
}

TEST(MscclXml, SaysWhereAFileIsWrong) {
  const auto with = [](const std::string& bad) { return two_ranks("\n" + block(0, "\n" + bad)); };
  const struct {
    std::string text, error;
  } kCases[] = {
      {"", "file:1: not well-formed XML: No document element found"},
      {"<algo><gpu", "file:1: not well-formed XML: Error parsing start element tag"},
      {"\n\n<topology/>", "file:3: <topology>: the root element must be <algo>"},
      {"<algo coll=\"allreduce\"/>", "file:1: <algo>: has no attribute ngpus"},
      {"<algo coll=\"alltoallv\"/>",
       "file:1: <algo>: coll is 'alltoallv', which is no collective with a fixed result"},
      {"<algo coll=\"allreduce\" ngpus=\"-2\"/>",
       "file:1: <algo>: ngpus is -2, must be 1 to 65536"},
      {"<algo coll=\"allreduce\" ngpus=\"2\" nchunksperloop=\"1000000000\"/>",
       "file:1: <algo>: nchunksperloop is 1000000000, must be 1 to 16777216"},
      {"<algo coll=\"allgather\" ngpus=\"3\" nchunksperloop=\"4\"/>",
       "file:1: <algo>: nchunksperloop is 4, which does not divide by the 3 ranks of all_gather"},
      {"<algo coll=\"allreduce\" ngpus=\"2\" nchunksperloop=\"1\">\n<gpu id=\"0\"/></algo>",
       "file:1: <algo>: ngpus is 2, but there is no gpu 1"},
      {"<algo coll=\"allreduce\" ngpus=\"2\" nchunksperloop=\"1\">\n<gpu id=\"0\"/>\n<gpu "
       "id=\"0\"/></algo>",
       "file:3: gpu 0: a second gpu 0"},
      {two_ranks("", " coll=\"allreduce\" inplace=\"yes\""),
       "file:1: <algo>: inplace is 'yes', not a whole number"},
      {two_ranks("", " coll=\"allreduce\" inplace=\"0\" outofplace=\"0\""),
       "file:1: <algo>: is neither for calls in place nor out of place"},
      {two_ranks("", " coll=\"allreduce\" minBytes=\"9\" maxBytes=\"8\""),
       "file:1: <algo>: maxBytes 8 is less than minBytes 9"},
      {two_ranks("", " coll=\"allgather\""),
       "file:2: gpu 0: i_chunks is 4, but nchunksperloop makes it 2"},
      {with(step(0, "ss", "i", 0, "o", 0, 1)),
       "file:5: gpu 0 tb 0 step 0: type is 'ss', no step type of MSCCL"},
      {with(step(0, "s", "x", 0, "o", 0, 1)),
       "file:5: gpu 0 tb 0 step 0: srcbuf is 'x', must be i, o or s"},
      {with(step(0, "s", "i", -1, "o", 0, 1)),
       "file:5: gpu 0 tb 0 step 0: srcoff is -1, must be 0 to 16777216"},
      {with(step(0, "s", "i", 0, "o", 0, 0)),
       "file:5: gpu 0 tb 0 step 0: cnt is 0, must be 1 to 16777216"},
      {with(step(1, "s", "i", 0, "o", 0, 1)),
       "file:5: gpu 0 tb 0 step 1: steps must be numbered 0 to 0"},
      {with(step(0, "s", "i", 0, "o", 0, 1, 3, 0)),
       "file:5: gpu 0 tb 0 step 0: depends on tb 3 step 0, which does not exist"},
      {two_ranks(block(0, step(0, "s", "i", 0, "o", 0, 1), -1)),
       "file:3: gpu 0 tb 0 step 0: sends, but its tb has send -1"},
      {two_ranks(block(0, step(0, "r", "i", 0, "o", 0, 1), 1, -1)),
       "file:3: gpu 0 tb 0 step 0: receives, but its tb has recv -1"},
      {two_ranks(block(0, "", 0)), "file:3: gpu 0 tb 0: its peer is gpu 0 itself"},
      {two_ranks(block(1, "")), "file:3: gpu 0 tb 1: thread blocks must be numbered 0 to 0"},
      {two_ranks("<tb id=\"0\"/>"), "file:3: gpu 0 tb 0: has no attribute send"},
      {two_ranks("<rank/>"), "file:3: gpu 0 <rank>: only <tb> and <copy> belong into <gpu>"},
      {with("<op step=\"0\"/>"),
       "file:5: gpu 0 tb 0 <op>: the short form <op> is not supported; write <step>"},
      {two_ranks("<!-- \xff -->"), "file:3: not UTF-8"},
  };
  for (const auto& c : kCases) EXPECT_EQ(xml_refusal(c.text), c.error) << c.text;
}

TEST(MscclXml, AsksForTheCollectiveWhereAFileDoesNotName) {
  const std::string nameless = two_ranks("", ""), custom = two_ranks("", " coll=\"custom\"");
  EXPECT_EQ(xml_refusal(nameless),
            "file:1: <algo>: has no attribute coll: say which collective it is (--coll)");
  EXPECT_EQ(xml_refusal(custom),
            "file:1: <algo>: coll is 'custom': say which collective it is (--coll)");
  EXPECT_EQ(xml_refusal(nameless, CollectiveKind::kAllReduce), "");
  EXPECT_EQ(xml_refusal(custom, CollectiveKind::kAllReduce), "");
  EXPECT_EQ(xml_refusal(two_ranks(""), CollectiveKind::kBroadcast),
            "file:1: <algo>: coll is 'allreduce', not broadcast");
}

TEST(MscclXml, WritesWhatEachDialectDemands) {
  ScheduleFile file = read(
      "<algo name=\"r\" ngpus=\"2\" nchunksperloop=\"4\" coll=\"reducescatter\" inplace=\"0\">"
      "<gpu id=\"0\"/><gpu id=\"1\"/></algo>");
  const std::string azure = write_msccl_xml(file, MscclDialect::kAzure);
  for (const char* part : {"coll=\"reducescatter\"", "inplace=\"0\"", "outofplace=\"1\"",
                           "minBytes=\"0\"", "maxBytes=\"0\"", "i_chunks=\"4\"", "o_chunks=\"2\""})
    EXPECT_NE(azure.find(part), std::string::npos) << part << " in " << azure;
  const std::string legacy = write_msccl_xml(file, MscclDialect::kLegacy);
  for (const char* part :
       {"coll=\"reduce_scatter\"", "inplace=\"0\"", "maxBytes=\"9223372036854775807\""})
    EXPECT_NE(legacy.find(part), std::string::npos) << part << " in " << legacy;
  EXPECT_EQ(read(azure), file);
  EXPECT_EQ(read(legacy), file);
  file.in_place = true;
  EXPECT_THROW(write_msccl_xml(file, MscclDialect::kLegacy), Error);
  EXPECT_EQ(read(write_msccl_xml(file, MscclDialect::kAzure)), file);
}

TEST(MscclXml, PutsAllButTheLastDependencyIntoNopsAndMarksWhatIsAwaited) {
  Schedule s = blank("waits", {CollectiveKind::kBroadcast, 1, 0}, 3, 3);
  auto& lanes = s.ranks[0].lanes;
  add(lanes[0], {Operand::input(0)}, {Operand::output(0)});
  add(lanes[1], {Operand::input(1)}, {Operand::output(1)});
  add(lanes[2], {Operand::input(2)}, {Operand::output(2)}, 1, {{0, 0}, {1, 0}});
  ScheduleFile file;
  file.schedule = s;
  const std::string text = write_msccl_xml(file);
  EXPECT_NE(text.find("<step s=\"0\" type=\"nop\" srcbuf=\"i\" srcoff=\"-1\" dstbuf=\"o\" "
                      "dstoff=\"-1\" cnt=\"0\" depid=\"0\" deps=\"0\" hasdep=\"0\"/>"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("cnt=\"1\" depid=\"1\" deps=\"0\" hasdep=\"0\"/>"), std::string::npos)
      << text;
  EXPECT_NE(text.find("cnt=\"1\" depid=\"-1\" deps=\"-1\" hasdep=\"1\"/>"), std::string::npos)
      << text;
  EXPECT_NO_THROW(prove(read(text), 2));
}

TEST(MscclXml, WritesStepsThatMscclLacksAsSeveral) {
  // A copy that is also sent, and a sum of two places into a third.
  Schedule s = blank("several", {CollectiveKind::kAllReduce, 2, 0}, 1, 1);
  for (int r = 0; r < 2; r++) {
    auto& mine = s.ranks[static_cast<size_t>(r)];
    mine.scratch_chunks = 2;
    add(mine.lanes[0], {Operand::input(0)}, {Operand::scratch(0), Operand::peer(1 - r)});
    add(mine.lanes[0], {Operand::peer(1 - r)}, {Operand::scratch(1)});
    add(mine.lanes[0], {Operand::scratch(0), Operand::scratch(1)}, {Operand::output(0)});
  }
  ScheduleFile file;
  file.schedule = s;
  const ScheduleFile again = read(write_msccl_xml(file));
  EXPECT_EQ(again.schedule.ranks[0].lanes[0].steps.size(), 5u);
  EXPECT_NE(prove(again, 2).out_of_place, nullptr);
  EXPECT_EQ(read(write_msccl_xml(again)), again);
}

TEST(MscclXml, KeepsToTheRuntimesLimits) {
  const Collective c{CollectiveKind::kBroadcast, 1, 0};
  Schedule s = blank("limits", c, 100, 1);
  add(s.ranks[0].lanes[0], {Operand::input(0)}, {Operand::output(0)}, 73);
  EXPECT_EQ(write_refusal(s), "rank 0 lane 0 step 0 moves 73 chunks, at most 72 fit in a step");
  s = blank("limits", c, 1, 1);
  for (int i = 0; i < 257; i++) add(s.ranks[0].lanes[0], {Operand::input(0)}, {Operand::output(0)});
  EXPECT_EQ(write_refusal(s), "rank 0 lane 0 has 257 steps, at most 256 fit");
  s.ranks[0].lanes[0].steps.pop_back();
  EXPECT_EQ(write_refusal(s), "");
  EXPECT_EQ(write_refusal(blank("limits", c, 1, 217)), "rank 0 has 217 lanes, at most 216 fit");
  EXPECT_EQ(write_refusal(blank("limits", c, 1, 216)), "");
  s = blank("limits", {CollectiveKind::kAllReduce, 2, 0}, 1, 1);
  add(s.ranks[0].lanes[0], {Operand::input(0)}, {Operand::peer(1, 32)});
  EXPECT_EQ(write_refusal(s), "rank 0 lane 0 step 0: channel 32, there are 32");
  s = blank("limits", {CollectiveKind::kAllReduce, 40, 0}, 1, 33);
  for (int l = 0; l < 33; l++)
    add(s.ranks[0].lanes[static_cast<size_t>(l)], {Operand::input(0)}, {Operand::peer(l + 1)});
  EXPECT_EQ(write_refusal(s), "rank 0 has 33 lanes on channel 0, at most 32 fit");
}

TEST(MscclXml, RefusesToWriteWhatTheFormatCannotSay) {
  const Collective c{CollectiveKind::kAllReduce, 3, 0};
  const auto with = [&](Operands from, Operands to, int count = 1) {
    Schedule s = blank("beyond", c, 1, 1);
    add(s.ranks[0].lanes[0], std::move(from), std::move(to), count);
    return s;
  };
  const Operand in = Operand::input(0), out = Operand::output(0);
  EXPECT_EQ(write_refusal(with({in}, {Operand::peer(1), Operand::peer(2)})),
            "rank 0 lane 0 step 0 sends to several peers");
  EXPECT_EQ(write_refusal(with({Operand::peer(1), Operand::peer(2)}, {out})),
            "rank 0 lane 0 step 0 receives from several peers");
  EXPECT_EQ(write_refusal(with({Operand::remote(1, Buffer::kInput, 0)}, {out})),
            "rank 0 lane 0 step 0 reaches into a peer's memory");
  EXPECT_EQ(write_refusal(with({}, {Operand::peer(1)}, 0)), "rank 0 lane 0 step 0 moves a token");
  EXPECT_EQ(write_refusal(with({Operand::peer(1)}, {Operand::peer(2)})),
            "rank 0 lane 0 step 0 passes a message on without storing it");
  EXPECT_EQ(write_refusal(with({Operand::peer(1), in, out}, {out})),
            "rank 0 lane 0 step 0 reduces 3 sources, MSCCL's steps two");
  EXPECT_EQ(write_refusal(with({in, out}, {Operand::peer(1)})),
            "rank 0 lane 0 step 0 sends a sum it does not store");
  Schedule s = with({in}, {Operand::peer(1)});
  add(s.ranks[0].lanes[0], {in}, {Operand::peer(2)});
  EXPECT_EQ(write_refusal(s),
            "rank 0 lane 0 step 1: a thread block has one peer to send to and one to receive from, "
            "on one channel");
  s = blank("beyond", c, 1, 2);
  add(s.ranks[0].lanes[0], {}, {});
  add(s.ranks[0].lanes[1], {in}, {out}, 1, {{0, 0}});
  EXPECT_EQ(write_refusal(s), "a step depends on rank 0 lane 0 step 0, which moves nothing");
  s.collective.kind = CollectiveKind::kSendRecv;
  EXPECT_EQ(write_refusal(s), "MSCCL's dialect has no sendrecv");
}

TEST(MscclXml, CarriesTheRingsThatWeGenerate) {
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
    ScheduleFile file;
    file.schedule = kRing.make({kind, 8, 0}, true);
    const ScheduleFile again = read(write_msccl_xml(file));
    const ProvedFile proved = prove(again, 2);
    EXPECT_NE(proved.in_place, nullptr) << name(kind);
    EXPECT_EQ(read(write_msccl_xml(again)), again) << name(kind);
  }
}

}  // namespace
}  // namespace weft::test
