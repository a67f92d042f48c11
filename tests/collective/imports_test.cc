// WEFT_SCHEDULES, MSCCL_XML_FILES and MSCCL_ALGO_DIR: a file is used for the calls that it fits.
// For every other call the log says why it is not used.
#include <gtest/gtest.h>

#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"
#include "src/schedule/msccl_xml.h"
#include "src/schedule/schedule_json.h"
#include "tests/collective/imported_runs.h"
#include "tests/support/environment.h"
#include "tests/support/processes.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

// A ring schedule of ours as a file that says for which calls it is.
ScheduleFile ring(CollectiveKind kind, int n, bool in_place = true, bool out_of_place = true) {
  ScheduleFile file;
  file.schedule = kRing.make({kind, n, 0}, true);
  file.schedule.name = "imported ring";
  file.in_place = in_place;
  file.out_of_place = out_of_place;
  file.modes_declared = true;
  return file;
}

ApiCall call(CollectiveKind kind, int n, size_t count, bool in_place = false,
             ncclRedOp_t op = ncclSum) {
  return {{kind, n, 0}, count, in_place, op};
}

class Imports : public testing::Test {
 protected:
  // The log line that says why a file does not serve a call. "" if there is none, "several" if
  // there are many.
  std::string reason(const std::string& path) const {
    const auto lines = folder.log_lines("schedule " + path + " is not used");
    if (lines.empty()) return "";
    if (lines.size() > 1) return "several";
    return lines[0].substr(lines[0].find(" is not used") + 12);
  }
  size_t uses(const std::string& path) const { return folder.log_lines("runs as " + path).size(); }

  ScheduleFolder folder;
};

TEST_F(Imports, RunForTheCallsTheyAreFor) {
  const std::string xml =
      folder.add("ring.xml", write_msccl_xml(ring(CollectiveKind::kAllReduce, 3)));
  const ScopedEnvironment environment{{"WEFT_SCHEDULES", xml}};
  std::vector<ApiCall> calls;
  for (const bool in_place : {false, true})
    for (const size_t count : {1, 2, 3, 7, 1000, 100003})
      for (const ncclRedOp_t op : {ncclSum, ncclMax, ncclAvg, ncclProd})
        calls.push_back(call(CollectiveKind::kAllReduce, 3, count, in_place, op));
  calls.push_back(call(CollectiveKind::kAllGather, 3, 10));  // it uses a built-in plan
  EXPECT_EQ(run_calls(3, calls), 0u);
  EXPECT_EQ(uses(xml), 6u) << "three ranks, in place and out of place";
  EXPECT_EQ(folder.log_lines("is for all_reduce of 3 ranks, in place and out of place").size(), 1u);
  EXPECT_EQ(reason(xml), "");
}

TEST_F(Imports, ComeFromFoldersAndFromMscclsVariablesToo) {
  const std::string a =
      folder.add("a.json", write_schedule_json(ring(CollectiveKind::kAllReduce, 2)));
  const std::string b = folder.add("b.xml", write_msccl_xml(ring(CollectiveKind::kAllGather, 2)));
  folder.add("notes.txt", "no schedule");
  const std::vector<ApiCall> calls = {call(CollectiveKind::kAllReduce, 2, 100),
                                      call(CollectiveKind::kAllGather, 2, 100)};
  const ScopedEnvironment::Setting kWays[] = {{"WEFT_SCHEDULES", folder.path()},
                                              {"MSCCL_XML_FILES", a + ":" + b},
                                              {"MSCCL_ALGO_DIR", folder.path()}};
  size_t times = 0;
  for (const auto& way : kWays) {
    const ScopedEnvironment environment{way};
    EXPECT_EQ(run_calls(2, calls), 0u) << way.first;
    times += 2;
    EXPECT_EQ(uses(a), times) << way.first;
    EXPECT_EQ(uses(b), times) << way.first;
  }
  EXPECT_TRUE(folder.log_lines("notes.txt").empty());
}

TEST_F(Imports, SayWhyTheyAreNotUsed) {
  ScheduleFile file = ring(CollectiveKind::kAllReduce, 2, true, false);
  file.min_bytes = 400;
  file.max_bytes = 4000;
  const std::string picky = folder.add("picky.xml", write_msccl_xml(file));
  const std::string other =
      folder.add("other.xml", write_msccl_xml(ring(CollectiveKind::kAllReduce, 5)));
  const std::string broken = folder.add("broken.xml", "<algo>");
  const std::string missing = folder.path() + "/missing.xml";
  file.schedule.ranks[1].lanes[0].steps.pop_back();
  const std::string wrong = folder.add("wrong.json", write_schedule_json(file));
  const ScopedEnvironment environment{
      {"WEFT_SCHEDULES", picky + ":" + other + ":" + broken + ":" + missing + ":" + wrong}};
  for (int i = 0; i < 2; i++)  // the log says it only once
    EXPECT_EQ(run_calls(2, {call(CollectiveKind::kAllReduce, 2, 100, true)}), 0u);
  EXPECT_EQ(uses(picky), 4u);
  EXPECT_EQ(reason(other), " in communicators of 2 ranks: it is for 5 ranks");
  EXPECT_EQ(reason(broken), ": " + broken + ":1: not well-formed XML: Start-end tags mismatch");
  EXPECT_EQ(reason(missing), ": " + missing + ": there is no such file");
  EXPECT_NE(reason(wrong).find("refused: "), std::string::npos) << reason(wrong);
  EXPECT_EQ(run_calls(2, {call(CollectiveKind::kAllReduce, 2, 100, false),
                          call(CollectiveKind::kAllReduce, 2, 101, false)}),
            0u);
  EXPECT_EQ(reason(picky), " for all_reduce of 400 bytes out of place: it is for calls in place");
}

TEST_F(Imports, SayWhichRuleOfACallExcludesThem) {
  ScheduleFile file = ring(CollectiveKind::kAllReduce, 2);
  file.min_bytes = 400;
  file.max_bytes = 4000;
  const std::string path = folder.add("sizes.xml", write_msccl_xml(file));
  const ScopedEnvironment environment{{"WEFT_SCHEDULES", path}};
  EXPECT_EQ(run_calls(2, {call(CollectiveKind::kAllReduce, 2, 99),
                          call(CollectiveKind::kAllReduce, 2, 1001)}),
            0u);
  EXPECT_EQ(uses(path), 0u);
  EXPECT_EQ(reason(path), " for all_reduce of 396 bytes out of place: it is for 400 to 4000 bytes");
  EXPECT_EQ(run_calls(2, {call(CollectiveKind::kAllReduce, 2, 100),
                          call(CollectiveKind::kAllReduce, 2, 1000)}),
            0u);
  EXPECT_EQ(uses(path), 2u);
}

TEST_F(Imports, GiveWayToAForcedPlan) {
  const std::string path =
      folder.add("ring.xml", write_msccl_xml(ring(CollectiveKind::kAllReduce, 2)));
  const ScopedEnvironment environment{{"WEFT_SCHEDULES", path}, {"WEFT_PLAN", "all_reduce=tree"}};
  EXPECT_EQ(run_calls(2, {call(CollectiveKind::kAllReduce, 2, 100)}), 0u);
  EXPECT_EQ(uses(path), 0u);
  EXPECT_EQ(reason(path), " for all_reduce of 400 bytes out of place: WEFT_PLAN asks for tree");
}

TEST_F(Imports, ThatAnEarlierOneHidesAreTold) {
  const std::string text = write_msccl_xml(ring(CollectiveKind::kAllReduce, 2));
  const std::string first = folder.add("a.xml", text), second = folder.add("b.xml", text);
  const ScopedEnvironment environment{{"WEFT_SCHEDULES", first + ":" + second + ":" + first}};
  EXPECT_EQ(run_calls(2, {call(CollectiveKind::kAllReduce, 2, 100)}), 0u);
  EXPECT_EQ(uses(first), 2u);
  EXPECT_EQ(folder.log_lines(second + " is not used: " + first + ", named earlier").size(), 1u);
}

TEST_F(Imports, TakeOnlyCountsThatTheirChunksDivideWherePiecesMoveAround) {
  // Chunk 0 goes through the place of chunk 1, so both must have the same length.
  ScheduleFile file;
  file.schedule = blank("moving", {CollectiveKind::kBroadcast, 2, 0}, 2, 1);
  add(file.schedule.ranks[0].lanes[0], {Operand::input(0)}, {Operand::output(1)});
  add(file.schedule.ranks[0].lanes[0], {Operand::output(1)},
      {Operand::output(0), Operand::peer(1)});
  add(file.schedule.ranks[0].lanes[0], {Operand::input(1)}, {Operand::output(1), Operand::peer(1)});
  for (int c = 0; c < 2; c++)
    add(file.schedule.ranks[1].lanes[0], {Operand::peer(0)}, {Operand::output(c)});
  file.in_place = false;
  file.modes_declared = true;
  const std::string rooted = folder.add("rooted.json", write_schedule_json(file));
  {
    const ScopedEnvironment environment{{"WEFT_SCHEDULES", rooted}};
    EXPECT_EQ(run_calls(2, {call(CollectiveKind::kBroadcast, 2, 10)}), 0u);
    EXPECT_NE(reason(rooted).find("it works out of place only"), std::string::npos)
        << reason(rooted);
  }
  file.schedule.collective.kind = CollectiveKind::kAllGather;
  file.schedule.chunks = 2;
  for (int r = 0; r < 2; r++) {
    Lane& lane = file.schedule.ranks[static_cast<size_t>(r)].lanes[0];
    lane = {};
    const int mine = 2 * r, theirs = 2 - 2 * r;
    add(lane, {Operand::input(0)}, {Operand::output(theirs + 1)});
    add(lane, {Operand::output(theirs + 1)}, {Operand::output(mine), Operand::peer(1 - r)});
    add(lane, {Operand::input(1)}, {Operand::output(mine + 1), Operand::peer(1 - r)});
    for (int c = 0; c < 2; c++) add(lane, {Operand::peer(1 - r)}, {Operand::output(theirs + c)});
  }
  const std::string path = folder.add("moving.json", write_schedule_json(file));
  const ScopedEnvironment environment{{"WEFT_SCHEDULES", path}};
  EXPECT_EQ(run_calls(2, {call(CollectiveKind::kAllGather, 2, 10),
                          call(CollectiveKind::kAllGather, 2, 11)}),
            0u);
  EXPECT_EQ(uses(path), 2u);
  EXPECT_EQ(reason(path),
            " for all_gather of 88 bytes out of place: it is for counts that divide by 2");
}

TEST_F(Imports, MayNeedDeepFifosAndManyChannels) {
  // Both ranks send 40 messages, on channels 0, 30, 60, ..., before they receive the first.
  ScheduleFile file;
  const int chunks = 40;
  file.schedule = blank("deep", {CollectiveKind::kAllGather, 2, 0}, chunks, 1);
  for (int r = 0; r < 2; r++) {
    Lane& lane = file.schedule.ranks[static_cast<size_t>(r)].lanes[0];
    const auto peer = [&](int c) { return Operand::peer(1 - r, c % 4 * 30); };
    for (int c = 0; c < chunks; c++)
      add(lane, {Operand::input(c)}, {Operand::output(chunks * r + c), peer(c / 10)});
    for (int c = 0; c < chunks; c++)
      add(lane, {peer(c / 10)}, {Operand::output(chunks * (1 - r) + c)});
  }
  const std::string path = folder.add("deep.json", write_schedule_json(file));
  for (const char* zero_copy : {"1", "1G"}) {
    const ScopedEnvironment environment{{"WEFT_SCHEDULES", path},
                                        {"WEFT_ZERO_COPY_BYTES", zero_copy}};
    EXPECT_EQ(run_calls(2, {call(CollectiveKind::kAllGather, 2, 17),
                            call(CollectiveKind::kAllGather, 2, 1 << 16)}),
              0u);
  }
  EXPECT_EQ(uses(path), 4u);
}

TEST_F(Imports, WithBuffersInPlaceOnSomeRanksOnlyEndInAnError) {
  const std::string path =
      folder.add("ring.xml", write_msccl_xml(ring(CollectiveKind::kAllReduce, 2, true, false)));
  const ScopedEnvironment environment{{"WEFT_SCHEDULES", path}};
  run_ranks_as_threads(2, [&](int rank, ncclComm_t comm) {
    ApiBuffers buffers(call(CollectiveKind::kAllReduce, 2, 100, rank == 0), rank);
    EXPECT_NE(buffers.run(comm), ncclSuccess);
    const std::string text = ncclGetLastError(comm);
    EXPECT_NE(text.find("imported schedules need buffers in place on all ranks or on none"),
              std::string::npos)
        << text;
  });
}

TEST_F(Imports, ServeCommunicatorsOfTheirSizeAfterASplit) {
  const std::string path =
      folder.add("ring.xml", write_msccl_xml(ring(CollectiveKind::kAllReduce, 2)));
  const ScopedEnvironment environment{{"WEFT_SCHEDULES", path}};
  run_ranks_as_threads(4, [&](int rank, ncclComm_t comm) {
    ncclComm_t half = nullptr;
    WEFT_OK(ncclCommSplit(comm, rank % 2, rank, &half, nullptr));
    ApiBuffers buffers(call(CollectiveKind::kAllReduce, 2, 100), rank / 2);
    WEFT_OK(buffers.run(half));
    EXPECT_EQ(buffers.wrong(), 0u);
    WEFT_OK(ncclCommDestroy(half));
  });
  EXPECT_EQ(uses(path), 4u);
}

// Ranks as processes, over shared memory and over TCP; the argument is the kind.
WEFT_SCENARIO(imported_ring) {
  with_communicator(context, [&](ncclComm_t comm) {
    for (const size_t count : {5, 70000}) {
      ApiBuffers buffers(call(CollectiveKind::kAllReduce, context.nranks, count), context.rank);
      WEFT_OK(buffers.run(comm));
      EXPECT_EQ(buffers.wrong(), 0u);
    }
  });
}

WEFT_SCENARIO(different_schedules) {
  ncclComm_t comm = nullptr;
  EXPECT_NE(ncclCommInitRank(&comm, context.nranks, context.ids[0], context.rank), ncclSuccess);
  const std::string text = ncclGetLastError(nullptr);
  EXPECT_NE(text.find("has other schedules than rank"), std::string::npos) << text;
}

TEST_F(Imports, RunBetweenProcessesToo) {
  // Four rings in parallel, each on its own channels.
  ScheduleFile file = ring(CollectiveKind::kAllReduce, 3);
  const Schedule one = file.schedule;
  const int rings = 4;
  file.schedule.chunks = one.chunks * rings;
  for (RankSchedule& rank : file.schedule.ranks) {
    const Lane lane = rank.lanes[0];
    rank.lanes.assign(rings, lane);
    for (int k = 0; k < rings; k++)
      for (Step& step : rank.lanes[static_cast<size_t>(k)].steps)
        for (auto* operands : {&step.from, &step.to})
          for (Operand& o : *operands) {
            if (o.kind == Operand::Kind::kPeer) o.channel = static_cast<int16_t>(7 * k);
            if (o.kind == Operand::Kind::kLocal) o.index += k * one.chunks;
          }
  }
  const std::string path = folder.add("rings.json", write_schedule_json(file));
  ProcessOptions options;
  for (const bool hosts : {false, true}) {
    options.environment = [&](int rank) {
      auto variables = hosts ? separate_hosts(rank) : std::map<std::string, std::string>{};
      variables["WEFT_SCHEDULES"] = path;
      return variables;
    };
    run_ranks_as_processes("imported_ring", 3, options);
  }
  EXPECT_EQ(uses(path), 6u);
}

TEST_F(Imports, ThatDifferBetweenRanksFailTheInitOnEveryRank) {
  const std::string path =
      folder.add("ring.xml", write_msccl_xml(ring(CollectiveKind::kAllReduce, 3)));
  ProcessOptions options;
  options.environment = [&](int rank) -> std::map<std::string, std::string> {
    return {{"WEFT_SCHEDULES", rank == 1 ? "" : path}};
  };
  run_ranks_as_processes("different_schedules", 3, options);
}

}  // namespace
}  // namespace weft::test
