// Schedules as bytes: everything in a Schedule survives, and damaged bytes are refused.
#include "src/schedule/schedule_bytes.h"

#include <gtest/gtest.h>

#include <random>

#include "algorithms/generators/generators.h"
#include "src/base/error.h"
#include "src/schedule/schedule_json.h"

namespace weft::test {
namespace {

ScheduleFile some_file() {
  ScheduleFile file;
  file.schedule = kTree.make({CollectiveKind::kAllReduce, 5, 0}, false);
  file.schedule.routes.push_back({0, 3, 1, {4, 7, 200}});
  file.min_bytes = 12;
  file.max_bytes = 1 << 30;
  file.in_place = false;
  file.modes_declared = true;
  file.protocol = "LL128";
  return file;
}

TEST(ScheduleBytes, HoldWhateverTheGeneratorsMake) {
  for (const Generator& generator : generators())
    for (int kind = 0; kind < kCollectiveKinds; kind++)
      for (const int n : {1, 2, 5, 8}) {
        const Collective c{static_cast<CollectiveKind>(kind), n, n - 1};
        if (!generator.supports(c)) continue;
        ScheduleFile file;
        file.schedule = generator.make(c, true);
        const std::string bytes = write_schedule_bytes(file);
        EXPECT_EQ(read_schedule_bytes(bytes, "bytes"), file) << generator.name;
        EXPECT_EQ(parse_schedule(bytes, "bytes"), file) << "files are told apart by content";
      }
  EXPECT_EQ(read_schedule_bytes(write_schedule_bytes(some_file()), "bytes"), some_file());
}

TEST(ScheduleBytes, AreFarSmallerThanTheText) {
  ScheduleFile file;
  file.schedule = kDirect.make({CollectiveKind::kAllReduce, 32, 0}, false);
  EXPECT_LT(write_schedule_bytes(file).size() * 7, write_schedule_json(file).size());
}

TEST(ScheduleBytes, ThatAreCutOffOrLongerAreRefused) {
  const std::string bytes = write_schedule_bytes(some_file());
  for (size_t size = 0; size < bytes.size(); size++)
    EXPECT_THROW(read_schedule_bytes(bytes.substr(0, size), "bytes"), Error) << size;
  EXPECT_THROW(read_schedule_bytes(bytes + '\0', "bytes"), Error);
}

TEST(ScheduleBytes, ThatAreDamagedAreRefusedOrAnotherSchedule) {
  const std::string bytes = write_schedule_bytes(some_file());
  std::mt19937 random(7);
  for (int i = 0; i < 20000; i++) {
    std::string other = bytes;
    for (int k = 0; k < 3; k++)
      other[kScheduleBytes.size() + random() % (other.size() - kScheduleBytes.size())] =
          static_cast<char>(random());
    try {
      const ScheduleFile file = read_schedule_bytes(other, "bytes");
      try {
        (void)prove(file, 8);
      } catch (const Error&) {
        continue;  // verify() judges
      }
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find("bytes: no schedule: "), 0u) << error.what();
    }
  }
}

}  // namespace
}  // namespace weft::test
