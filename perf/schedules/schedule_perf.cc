// schedule_perf: how fast schedules run on a GPU that all their ranks share.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "algorithms/generators/generators.h"
#include "perf/common/copy_rate.h"
#include "perf/common/errors.h"
#include "perf/common/sizes.h"
#include "perf/schedules/figures.h"
#include "perf/schedules/measure.h"
#include "perf/schedules/output.h"
#include "src/base/error.h"
#include "src/schedule/schedule_file.h"
#include "src/tools/command_line.h"
#include "src/tools/gpu_player.h"

namespace weft::perf::schedules {
namespace {

constexpr uint64_t kTiny = 1 << 10;  // its time shows the cost of steps
constexpr size_t kCopyBytes = 256 << 20;

constexpr const char* kSummary =
    "How fast schedules run on GPU 0. All ranks of a schedule are threads that share it.\n\n"
    "bytes: what the schedule reads and writes, over all steps of all ranks. Every source of a "
    "step is one read and every destination one write of the step's bytes. So a message is one "
    "write (by its sender) and one read (by its receiver); local sources are further reads, local "
    "destinations further writes. An executor that stores straight into the receiver's buffer "
    "moves less.\n"
    "/copy: bytes over the better time, as a share of the copy bandwidth (cudaMemcpyAsync of 256 "
    "MiB within the GPU, read and write, best of 10).\n"
    "msgs: the same of messages alone.\n"
    "chain: steps on the longest chain of steps that follow each other.\n"
    "us a step: the better time of 1K, divided by the chain.\n"
    "Times are medians of 7, of the slowest rank: of calls on a stream, and inside a CUDA graph.";

struct Settings {
  std::vector<std::string> schedules, sizes = {"1M", "64M", "256M"};
  std::string collective;
  int blocks = 0;
  bool json = false;
};

// A file, or GENERATOR:COLLECTIVE:RANKS.
ScheduleFile load(const std::string& text, const std::string& collective) {
  std::optional<CollectiveKind> kind;
  if (!collective.empty()) kind = parse_collective(collective);
  const size_t first = text.find(':'), last = text.rfind(':');
  if (std::filesystem::exists(text) || first == last) return load_schedule(text, kind);
  const Generator* generator = find_generator(text.substr(0, first));
  const auto made = parse_collective(text.substr(first + 1, last - first - 1));
  const int ranks = std::atoi(text.c_str() + last + 1);
  if (generator == nullptr || !made || ranks < 2 || !generator->supports({*made, ranks, 0}))
    fail(ncclInvalidArgument, "'{}' is no file and no GENERATOR:COLLECTIVE:RANKS that can be made",
         text);
  ScheduleFile file;
  file.schedule = generator->make({*made, ranks, 0}, false);
  return file;
}

// Returns the number of wrong elements.
uint64_t run_one(const Settings& settings, const std::string& path,
                 const std::vector<uint64_t>& sizes, Output& output) {
  ScheduleFile file = load(path, settings.collective);
  file.min_bytes = 0;
  file.max_bytes = ScheduleFile::kNoLimit;
  const auto schedules = ImportedSchedules::only(file, path);
  const ImportedSchedule& schedule = *schedules->all().front();
  const auto& verified =
      schedule.out_of_place != nullptr ? schedule.out_of_place : schedule.in_place;
  std::vector<uint64_t> all = {kTiny};
  all.insert(all.end(), sizes.begin(), sizes.end());
  output.begin(schedule, std::filesystem::path(path).stem().string(), figures_of(*verified));
  const std::vector<Times> times = measure(schedules, all);
  uint64_t wrong = times[0].wrong;
  for (size_t i = 1; i < times.size(); i++) {
    output.measured(all[i], times[i]);
    wrong += times[i].wrong;
  }
  output.step_overhead(times[0].best_us());
  return wrong;
}

void run(const Settings& settings) {
  std::vector<uint64_t> sizes;
  for (const std::string& text : settings.sizes) {
    const auto bytes = parse_size(text);
    if (!bytes) fail(ncclInvalidArgument, "--sizes: '{}' is no size", text);
    sizes.push_back(*bytes);
  }
  if (settings.blocks > 0) setenv("NCCL_MAX_CTAS", std::to_string(settings.blocks).c_str(), 1);
  ask_for_hardware_queues();
  require_gpu();
  Output output(settings.json, settings.blocks, copy_gbps(kCopyBytes));
  uint64_t wrong = 0;
  for (const std::string& path : settings.schedules)
    wrong += run_one(settings, path, sizes, output);
  if (wrong == 0) return;
  fmt::print(stderr, "schedule_perf: {} wrong values\n", wrong);
  throw weft::ExitCode{kExitFailed};
}

int run_program(int argc, char** argv) {
  Settings settings;
  CommandLine program("schedule_perf", kSummary);
  program
      .add_option("SCHEDULES", settings.schedules,
                  "MSCCL XML or Weft JSON, or GENERATOR:COLLECTIVE:RANKS such as ring:all_reduce:8")
      .required();
  program
      .add_option("--sizes", settings.sizes,
                  "bytes of the whole array, ',' between them; K, M, G; 1M,64M,256M unless told")
      .separated_by(',');
  program.add_option("--coll", settings.collective, "the collective, where files lack it")
      .collective();
  program.add_option("--blocks", settings.blocks, "at most so many thread blocks per rank")
      .between(1, 1024);
  program.add_flag("--json", settings.json, "rows for perf/check_baselines");
  program.calls([&settings] { run(settings); });
  return program.run(argc, argv);
}

}  // namespace
}  // namespace weft::perf::schedules

int main(int argc, char** argv) { return weft::perf::schedules::run_program(argc, argv); }
