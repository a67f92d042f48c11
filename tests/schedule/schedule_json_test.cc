// Schedules as JSON: everything in a Schedule survives, and nothing else is accepted.
#include "src/schedule/schedule_json.h"

#include <gtest/gtest.h>

#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"
#include "src/base/error.h"

namespace weft::test {
namespace {

std::string json_refusal(const std::string& text) {
  try {
    read_schedule_json(text, "file");
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return {};
}

// A file whose first rank has one lane with these steps.
std::string with_steps(const std::string& steps) {
  return "{\"weft_schedule\": 1, \"name\": \"n\", \"collective\": \"all_reduce\", \"ranks\": 1,\n"
         "\"chunks\": 1, \"parts\": [\n{\"lanes\": [[\n" +
         steps + "]]}]}";
}

TEST(ScheduleJson, HoldsWhateverTheGeneratorsMake) {
  int schedules = 0;
  for (const Generator& generator : generators())
    for (int kind = 0; kind < kCollectiveKinds; kind++)
      for (const int n : {1, 2, 5, 8}) {
        const Collective c{static_cast<CollectiveKind>(kind), n, n - 1};
        if (!generator.supports(c)) continue;
        ScheduleFile file;
        file.schedule = generator.make(c, true);
        EXPECT_EQ(read_schedule_json(write_schedule_json(file), "file"), file)
            << generator.name << ' ' << name(c.kind);
        schedules++;
      }
  EXPECT_GT(schedules, 50);
}

TEST(ScheduleJson, HoldsWhatSelectsAFile) {
  ScheduleFile file;
  file.schedule = kRing.make({CollectiveKind::kAllReduce, 3, 0}, true);
  file.schedule.name = "with \"quotes\", a \\ and an \xc3\xa9";
  file.protocol = "LL128";
  file.min_bytes = 17;
  file.max_bytes = uint64_t{1} << 40;
  file.modes_declared = true;
  file.out_of_place = false;
  file.schedule.routes = {{0, 1, 2, {3, 4}}, {2, 0, 0, {}}};
  EXPECT_EQ(read_schedule_json(write_schedule_json(file), "file"), file);
  file.out_of_place = true;
  file.in_place = false;
  EXPECT_EQ(read_schedule_json(write_schedule_json(file), "file"), file);
}

TEST(ScheduleJson, HoldsTokensNopsAndEmptyLanes) {
  ScheduleFile file;
  file.schedule = blank("odd", {CollectiveKind::kAllGather, 2, 0}, 1, 3);
  auto& lanes = file.schedule.ranks[1].lanes;
  add(lanes[0], {}, {Operand::peer(0, 7)}, 0);
  add(lanes[2], {}, {}, 1, {{0, 0}, {1, 5}});
  add(lanes[2], {Operand::remote(0, Buffer::kScratch, 3)}, {Operand::output(1)}, 9);
  EXPECT_EQ(read_schedule_json(write_schedule_json(file), "file"), file);
}

TEST(ScheduleJson, SaysWhereAFileIsWrong) {
  const std::string step = "{\"from\": [{\"input\": 0}], \"to\": [{\"output\": 0}]}";
  ASSERT_EQ(json_refusal(with_steps(step)), "");
  const struct {
    std::string text, error;
  } kCases[] = {
      {"[]", "file:1: the file must be one object, not a list"},
      {"{}", "file:1: \"weft_schedule\" is missing"},
      {"{\"nodes\": []}", "file:1: a schedule begins with \"weft_schedule\": 1"},
      {"{\"weft_schedule\": 2}", "file:1: version 2 of the format; this library reads version 1"},
      {"{\"weft_schedule\": 1,\n\"name\": \"a\",\n\"name\": \"b\"}", "file:3: a second \"name\""},
      {"{\"weft_schedule\": 1,\n\"nmae\": \"a\"}", "file:2: unknown key 'nmae'"},
      {"{\"weft_schedule\": 1, \"ranks\": 0}", "file:1: \"ranks\" is 0, must be 1 to 65536"},
      {"{\"weft_schedule\": 1, \"chunks\": 1000000000}",
       "file:1: \"chunks\" is 1000000000, must be 1 to 16777216"},
      {"{\"weft_schedule\": 1, \"chunks\": 1.5}", "file:1: \"chunks\" is not a whole number"},
      {"{\"weft_schedule\": 1, \"collective\": \"allreduce\"}",
       "file:1: \"collective\" is 'allreduce', which is none"},
      {"{\"weft_schedule\": 1, \"modes\": []}", "file:1: \"modes\" is empty"},
      {"{\"weft_schedule\": 1, \"name\": {\"a\": {}}}", "file:1: \"name\" is an object"},
      {"{\"weft_schedule\": 1, \"name\": \"a\\u0001\"}", "file:1: \"name\" has control characters"},
      {"{\"weft_schedule\": 1, \"max_bytes\": 18446744073709551616}",
       "file:1: \"max_bytes\" is not a whole number"},
      {with_steps("{\"count\": -1}"),
       "file:4: rank 0 lane 0 step 0: \"count\" is -1, must be 0 to 16777216"},
      {with_steps(step + ",\n{\"from\": [{\"input\": -3}]}"),
       "file:5: rank 0 lane 0 step 1: \"input\" is -3, must be 0 to 16777216"},
      {with_steps("{\"from\": [{\"input\": 0, \"output\": 0}]}"),
       "file:4: rank 0 lane 0 step 0: an operand is one of input, output, scratch and peer"},
      {with_steps("{\"from\": [{}]}"),
       "file:4: rank 0 lane 0 step 0: an operand is one of input, output, scratch and peer"},
      {with_steps("{\"from\": [{\"peer\": 0, \"rank\": 1}]}"),
       "file:4: rank 0 lane 0 step 0: \"rank\" does not belong to a peer"},
      {with_steps("{\"to\": [{\"input\": 0, \"channel\": 1}]}"),
       "file:4: rank 0 lane 0 step 0: \"channel\" does not belong to a chunk"},
      {with_steps("{\"after\": [[0]]}"),
       "file:4: rank 0 lane 0 step 0: a dependency is [lane, step]"},
      {with_steps("{\"after\": [[0, 1, 2]]}"),
       "file:4: rank 0 lane 0 step 0: a dependency is [lane, step]"},
      {with_steps("7"), "file:4: rank 0 lane 0: a number does not belong here"},
      {"{\"weft_schedule\": 1, \"name\": \"n\", \"collective\": \"all_reduce\", \"ranks\": 2, "
       "\"chunks\": 1, \"parts\": [{\"lanes\": []}]}",
       "file:1: \"ranks\" is 2, but there are 1 parts"},
      {"{\"weft_schedule\": 1, \"parts\": [{}]}", "file:1: rank 0: \"lanes\" is missing"},
      {"{\"weft_schedule\": 1,\n \"name\": \"\xff\"}", "file:2: not UTF-8"},
  };
  for (const auto& c : kCases) EXPECT_EQ(json_refusal(c.text), c.error) << c.text;
  EXPECT_NE(json_refusal("{\"weft_schedule\": 1,\n\n ]").find("file:3: not well-formed JSON: "),
            std::string::npos)
      << json_refusal("{\"weft_schedule\": 1,\n\n ]");
}

}  // namespace
}  // namespace weft::test
