// weft run: executes a schedule in host memory or on GPUs, and checks the data.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/comm/communicator.h"
#include "src/schedule/schedule_file.h"
#include "src/tools/commands.h"
#include "src/tools/gpu_player.h"
#include "src/tools/played_call.h"
#include "src/tools/rank_team.h"

namespace weft {
namespace {

constexpr int kRepeats = 7;  // timed, of each mode

struct RunArguments {
  std::string path, collective, ranks_as = "thread";
  uint64_t size = 0;
  bool json = false, on_gpu = false;
};

class HostPlayer : public Player {
 public:
  explicit HostPlayer(Communicator& communicator) : comm_(communicator) {}

  void take(const PlayedCall& call) override {
    played_ = &call;
    memory_.resize(call.elements());
  }
  Call call() override { return played_->call(memory_.data()); }
  void fill() override { played_->fill(0, memory_); }
  void run() override { run_on_host(comm_, batch_, call()); }
  uint64_t count_wrong() override { return played_->count_wrong(0, memory_); }

 private:
  Communicator& comm_;
  const PlayedCall* played_ = nullptr;
  std::vector<uint32_t> memory_;
  host::Batch batch_;
};

// Runs a call several times. Returns the median time in microseconds.
double play(Player& player, uint64_t& wrong) {
  player.fill();
  player.run();
  wrong += player.count_wrong();
  std::vector<double> times;
  for (int i = 0; i < kRepeats; i++) {
    const auto start = std::chrono::steady_clock::now();
    player.run();
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count());
  }
  std::sort(times.begin(), times.end());
  // Check again, after FIFOs have wrapped around.
  player.fill();
  player.run();
  wrong += player.count_wrong();
  return times[times.size() / 2];
}

RankReport play_modes(const Communicator& communicator, Player& player,
                      const ImportedSchedule& schedule, uint64_t count) {
  RankReport report;
  const int rank = communicator.rank();
  for (const bool in_place : {false, true}) {
    if ((in_place ? schedule.in_place : schedule.out_of_place) == nullptr) continue;
    const PlayedCall call(schedule.collective, rank, count, in_place);
    player.take(call);
    const PlanCall asked = plan_call(schedule.collective, player.call(), rank, false);
    if (communicator.chooser().choose(asked).schedule == nullptr)
      fail(ncclInvalidUsage, "the schedule cannot run here: NCCL_DEBUG=WARN says why");
    report.time_us[in_place ? 1 : 0] = play(player, report.wrong[in_place ? 1 : 0]);
  }
  return report;
}

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
  fmt::print("{} of {} ranks as {}{}, {} bytes\n", name(c.kind), c.nranks,
             arguments.ranks_as == "process" ? "processes" : "threads",
             arguments.on_gpu ? " on GPUs" : "", bytes);
  for (const auto& [mode, result] : modes)
    fmt::print("{:13} {:10.1f} us, {:8.3f} GB/s, {} elements wrong\n", mode, result.time_us,
               static_cast<double>(bytes) / result.time_us / 1e3, result.wrong);
}

ScheduleFile load(const RunArguments& arguments) {
  std::optional<CollectiveKind> kind;
  if (!arguments.collective.empty()) kind = parse_collective(arguments.collective);
  try {
    ScheduleFile file = load_schedule(arguments.path, kind);
    if (!file.schedule.codecs.empty())
      fail(ncclInvalidUsage, "{}: it has codecs, and weft run checks sums of integers",
           arguments.path);
    // The user chooses the size here; the file's own size range does not matter.
    file.min_bytes = 0;
    file.max_bytes = ScheduleFile::kNoLimit;
    return file;
  } catch (const Error& error) {
    if (error.code() != ncclInvalidArgument) throw;
    fmt::print(stderr, "weft: {}\n", error.what());  // readable, but its collective is unknown
    throw ExitCode{1};
  }
}

std::shared_ptr<const ImportedSchedules> prove_alone(const ScheduleFile& file,
                                                     const std::string& path) {
  try {
    return ImportedSchedules::only(file, path);
  } catch (const Error& error) {
    fmt::print(stderr, "weft: {}: {}\n", path, error.what());
    throw ExitCode{1};
  }
}

std::vector<RankReport> run_ranks(const RunArguments& arguments,
                                  const std::shared_ptr<const ImportedSchedules>& schedules,
                                  uint64_t count) {
  const ImportedSchedule& schedule = *schedules->all().front();
  const Collective c = schedule.collective;
  const bool processes = arguments.ranks_as == "process";
  // Threads: made before any rank runs, and kept until all have ended. A process makes its own,
  // because CUDA must not start before the fork.
  std::vector<std::unique_ptr<cuda::RankDevice>> devices(static_cast<size_t>(c.nranks));
  const auto make_device = [&](int rank) {
    const uint64_t elements = std::max(PlayedCall(c, rank, count, false).elements(),
                                       PlayedCall(c, rank, count, true).elements());
    devices[static_cast<size_t>(rank)] =
        std::make_unique<cuda::RankDevice>(device_of_rank(rank), elements * sizeof(uint32_t));
  };
  if (!arguments.on_gpu) setenv("WEFT_HOST_MODE", "1", 1);
  if (arguments.on_gpu && !processes) {
    ask_for_hardware_queues();
    require_gpu();
    for (int rank = 0; rank < c.nranks; rank++) make_device(rank);
  }
  return run_team(c.nranks, processes, [&](int rank, const UniqueId& id) {
    CommunicatorOptions options{
        id, {}, rank, c.nranks, fmt::format("rank {} of {}", rank, c.nranks)};
    options.schedules = schedules;
    if (!arguments.on_gpu) {
      Communicator communicator(std::move(options));
      HostPlayer player(communicator);
      return play_modes(communicator, player, schedule, count);
    }
    if (processes) require_gpu();
    if (processes) make_device(rank);
    cuda::RankDevice& device = *devices[static_cast<size_t>(rank)];
    options.device = device.device();
    options.issuer = static_cast<uint64_t>(rank) + 1;
    device.make_current();
    Communicator communicator(std::move(options));
    if (processes) communicator.gpu()->register_memory(device.data(), device.size());
    GpuPlayer player(communicator, device);
    return play_modes(communicator, player, schedule, count);
  });
}

void run_file(const RunArguments& arguments) {
  const auto schedules = prove_alone(load(arguments), arguments.path);
  const ImportedSchedule& schedule = *schedules->all().front();
  const Collective c = schedule.collective;
  const uint64_t count = PlayedCall::count_for(
      c, arguments.size, schedule.uniform_only ? static_cast<uint64_t>(schedule.chunks) : 1);
  const auto reports = run_ranks(arguments, schedules, count);
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
  print(arguments, c, count * static_cast<uint64_t>(c.array_blocks()) * sizeof(uint32_t), modes);
  if (wrong > 0) throw ExitCode{1};
}

}  // namespace

void add_run(Command& program) {
  auto arguments = std::make_shared<RunArguments>();
  Command command =
      program.add_command("run", "execute a schedule on host memory or GPUs and check the data");
  command.add_option("SCHEDULE", arguments->path, "MSCCL XML or Weft JSON").required();
  command.add_option("--size", arguments->size, "bytes of the whole array; K, M, G")
      .required()
      .in_bytes();
  command.add_option("--coll", arguments->collective, "the collective, where the file lacks it")
      .collective();
  command.add_option("--ranks-as", arguments->ranks_as, "thread (default) or process")
      .one_of({"thread", "process"});
  command.add_flag("--gpu", arguments->on_gpu,
                   "on the GPUs of this machine, which ranks take in turn and may share");
  command.add_flag("--json", arguments->json, "one JSON object");
  command.calls([arguments] { run_file(*arguments); });
}

}  // namespace weft
