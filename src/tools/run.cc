// weft run: executes a schedule in host memory and checks the data.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/comm/communicator.h"
#include "src/schedule/schedule_file.h"
#include "src/tools/commands.h"
#include "src/tools/rank_team.h"

namespace weft {
namespace {

constexpr int kRepeats = 7;  // timed, of each mode

struct RunArguments {
  std::string path, collective, ranks_as = "thread";
  uint64_t size = 0;
  bool json = false;
};

// Element `index` of a rank's input. The sum over all ranks follows directly, and no other set of
// ranks has the same sum.
uint32_t element(int rank, uint64_t index) {
  return static_cast<uint32_t>(rank) * 0x9e3779b1u + static_cast<uint32_t>(index) * 0x85ebca6bu;
}
uint32_t sum(int nranks, uint64_t index) {
  const auto n = static_cast<uint32_t>(nranks);
  return static_cast<uint32_t>(uint64_t{n} * (n - 1) / 2) * 0x9e3779b1u +
         n * static_cast<uint32_t>(index) * 0x85ebca6bu;
}

// One rank and its buffers.
class Player {
 public:
  Player(Communicator& communicator, const Collective& collective, uint64_t count)
      : comm_(communicator), c_(collective), rank_(communicator.rank()), count_(count) {}

  double time_us = 0;
  uint64_t wrong = 0;

  void play(bool in_place) {
    lay_out(in_place);
    if (comm_.chooser().choose(plan_call(c_, call_, rank_, false)).schedule == nullptr)
      fail(ncclInternalError, "the schedule does not serve its own call");
    fill();
    call();
    wrong = count_wrong();
    std::vector<double> times;
    for (int i = 0; i < kRepeats; i++) {
      const auto start = std::chrono::steady_clock::now();
      call();
      times.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
              .count());
    }
    std::sort(times.begin(), times.end());
    time_us = times[times.size() / 2];
    // Check again, after FIFOs have wrapped around.
    fill();
    call();
    wrong += count_wrong();
  }

 private:
  void lay_out(bool in_place) {
    const auto inputs = static_cast<uint64_t>(c_.input_blocks(rank_)) * count_;
    const auto outputs = static_cast<uint64_t>(c_.output_blocks(rank_)) * count_;
    const bool shared = in_place && inputs > 0 && outputs > 0;
    memory_.assign(shared ? std::max(inputs, outputs) : inputs + outputs, 0);
    const Collective::Overlap overlap = c_.overlap(rank_, 1);
    const auto at = [&](int blocks) { return static_cast<uint64_t>(blocks) * count_; };
    input_ = memory_.data() + (shared ? at(overlap.input_at) : 0);
    output_ = memory_.data() + (shared ? at(overlap.output_at) : inputs);
    call_ = {};
    call_.kind = c_.kind;
    call_.input = inputs > 0 ? input_ : nullptr;
    call_.output = outputs > 0 ? output_ : nullptr;
    call_.count = count_;
    call_.reduction.type = ncclUint32;
    call_.reduction.op = ncclSum;
    call_.root = c_.root;
  }

  void fill() {
    std::fill(memory_.begin(), memory_.end(), 0xdeadbeefu);
    const auto inputs = static_cast<uint64_t>(c_.input_blocks(rank_)) * count_;
    for (uint64_t i = 0; i < inputs; i++) input_[i] = element(rank_, i);
  }

  void call() { run_on_host(comm_, batch_, call_); }

  uint64_t count_wrong() const {
    uint64_t found = 0;
    const int n = c_.nranks;
    for (int block = 0; block < c_.output_blocks(rank_); block++) {
      // The piece of a rank's input that the collective puts here.
      const ChunkGoal goal = c_.goal(rank_, block, 1);
      const bool whole = goal.contributor == ChunkGoal::kEveryone;
      const int of_input =
          c_.kind == CollectiveKind::kAllToAll                                               ? rank_
          : c_.kind == CollectiveKind::kScatter || c_.kind == CollectiveKind::kReduceScatter ? rank_
                                                                                             : 0;
      const uint64_t first = static_cast<uint64_t>(of_input) * count_;
      const uint32_t* data = output_ + static_cast<uint64_t>(block) * count_;
      for (uint64_t i = 0; i < count_; i++) {
        const uint32_t expected = whole ? sum(n, first + i) : element(goal.contributor, first + i);
        found += data[i] != expected ? 1 : 0;
      }
    }
    return found;
  }

  Communicator& comm_;
  const Collective c_;
  const int rank_;
  const uint64_t count_;
  std::vector<uint32_t> memory_;
  uint32_t *input_ = nullptr, *output_ = nullptr;
  Call call_;
  host::Batch batch_;
};

struct Result {
  double time_us = 0;
  uint64_t wrong = 0;
};

void print(const RunArguments& arguments, const Collective& c, uint64_t bytes,
           const std::vector<std::pair<std::string, Result>>& modes) {
  uint64_t wrong = 0;
  for (const auto& [mode, result] : modes) wrong += result.wrong;
  if (arguments.json) {
    nlohmann::ordered_json out;
    out["time_us"] = modes.front().second.time_us;
    out["wrong"] = wrong;
    out["collective"] = name(c.kind);
    out["ranks"] = c.nranks;
    out["bytes"] = bytes;
    for (const auto& [mode, result] : modes)
      out["modes"][mode] = {{"time_us", result.time_us}, {"wrong", result.wrong}};
    fmt::print("{}\n", out.dump());
    return;
  }
  fmt::print("{} of {} ranks as {}, {} bytes\n", name(c.kind), c.nranks,
             arguments.ranks_as == "process" ? "processes" : "threads", bytes);
  for (const auto& [mode, result] : modes)
    fmt::print("{:13} {:10.1f} us, {:8.3f} GB/s, {} elements wrong\n", mode, result.time_us,
               static_cast<double>(bytes) / result.time_us / 1e3, result.wrong);
}

void run_file(const RunArguments& arguments) {
  std::optional<CollectiveKind> kind;
  if (!arguments.collective.empty()) kind = parse_collective(arguments.collective);
  ScheduleFile file;
  try {
    file = load_schedule(arguments.path, kind);
  } catch (const Error& error) {
    if (error.code() != ncclInvalidArgument) throw;
    fmt::print(stderr, "weft: {}\n", error.what());  // readable, but its collective is unknown
    throw ExitCode{1};
  }
  // The user chooses the size here; the file's own size range does not matter.
  file.min_bytes = 0;
  file.max_bytes = ScheduleFile::kNoLimit;
  std::shared_ptr<const ImportedSchedules> schedules;
  try {
    schedules = ImportedSchedules::only(file, arguments.path);
  } catch (const Error& error) {
    fmt::print(stderr, "weft: {}: {}\n", arguments.path, error.what());
    throw ExitCode{1};
  }
  const ImportedSchedule& schedule = *schedules->all().front();
  const Collective c = schedule.collective;
  // As in nccl-tests, the size is rounded down to a multiple that divides evenly.
  const auto blocks = static_cast<uint64_t>(c.array_blocks());
  const uint64_t unit = schedule.uniform_only ? static_cast<uint64_t>(schedule.chunks) : 1;
  const uint64_t count = std::max(unit, arguments.size / sizeof(uint32_t) / blocks / unit * unit);
  setenv("WEFT_HOST_MODE", "1", 1);
  const auto reports =
      run_team(c.nranks, arguments.ranks_as == "process", [&](int rank, const UniqueId& id) {
        RankReport report;
        CommunicatorOptions options{id, rank, c.nranks,
                                    fmt::format("rank {} of {}", rank, c.nranks)};
        options.schedules = schedules;
        Communicator communicator(std::move(options));
        Player player(communicator, c, count);
        for (const bool in_place : {false, true}) {
          if ((in_place ? schedule.in_place : schedule.out_of_place) == nullptr) continue;
          player.play(in_place);
          report.time_us[in_place ? 1 : 0] = player.time_us;
          report.wrong[in_place ? 1 : 0] = player.wrong;
        }
        return report;
      });
  for (const RankReport& report : reports)
    if (report.error[0] != '\0') fail(ncclInternalError, "{}: {}", arguments.path, report.error);
  std::vector<std::pair<std::string, Result>> modes;
  uint64_t wrong = 0;
  for (const int in_place : {0, 1}) {
    if ((in_place == 1 ? schedule.in_place : schedule.out_of_place) == nullptr) continue;
    Result& result =
        modes.emplace_back(in_place == 1 ? "in_place" : "out_of_place", Result{}).second;
    for (const RankReport& report : reports) {
      result.time_us = std::max(result.time_us, report.time_us[in_place]);
      result.wrong += report.wrong[in_place];
    }
    wrong += result.wrong;
  }
  print(arguments, c, count * blocks * sizeof(uint32_t), modes);
  if (wrong > 0) throw ExitCode{1};
}

}  // namespace

void add_run(Command& program) {
  auto arguments = std::make_shared<RunArguments>();
  Command command =
      program.add_command("run", "execute a schedule on host memory and check the data");
  command.add_option("SCHEDULE", arguments->path, "MSCCL XML or Weft JSON").required();
  command.add_option("--size", arguments->size, "bytes of the whole array; K, M, G")
      .required()
      .in_bytes();
  command.add_option("--coll", arguments->collective, "the collective, where the file lacks it")
      .collective();
  command.add_option("--ranks-as", arguments->ranks_as, "thread (default) or process")
      .one_of({"thread", "process"});
  command.add_flag("--json", arguments->json, "one JSON object");
  command.calls([arguments] { run_file(*arguments); });
}

}  // namespace weft
