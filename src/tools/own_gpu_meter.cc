// See own_gpu_meter.h. A graph has many calls, so that neither launches nor the host's clock count.
#include "src/tools/own_gpu_meter.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "algorithms/generators/generators.h"
#include "src/base/error.h"
#include "src/comm/communicator.h"
#include "src/planner/imported_schedules.h"
#include "src/tools/gpu_player.h"
#include "src/tools/interleaved_timing.h"
#include "src/tools/rank_team.h"
#include "src/topology/graph/paths.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTeamSizes[] = {2, 3, 4, 6, 8};
constexpr uint64_t kMessageCount = 64;  // elements of a rank: a message of packets
constexpr int kGraphCalls = 32, kGraphReplays = 8, kTimedRounds = 7;
// Of ranks that share a GPU: the way through its memory, see gpu_rates.cc.
constexpr double kSharedWayUs = 0.4;

double way_us(const Machine& machine, int from, int to) {
  if (from == to) return kSharedWayUs;
  const std::vector<int> all = gpus(machine);
  const auto most = static_cast<int>(all.size());
  if (from >= most || to >= most)
    fail(ncclInvalidUsage, "GPU {} is not in the picture of this machine", std::max(from, to));
  return best_path(machine, all[static_cast<size_t>(from)], all[static_cast<size_t>(to)]).us;
}

// One rank of a team.
class MeteredRank {
 public:
  MeteredRank(Communicator& comm, cuda::RankDevice& device, Meeting& meeting, int ranks)
      : comm_(comm), player_(comm, device), device_(device), meeting_(meeting), ranks_(ranks) {}

  // The median time of a call.
  double time(const Collective& collective) {
    const PlayedCall call(collective, comm_.rank(), kMessageCount, false);
    player_.take(call);
    player_.fill();
    player_.run();  // uploads what the plan needs
    meet();
    device_.record([&] {
      for (int i = 0; i < kGraphCalls; i++) player_.launch();
    });
    std::vector<double> rounds;
    for (int round = 0; round < kTimedRounds + 1; round++) {
      meet();
      const auto begin = Clock::now();
      for (int i = 0; i < kGraphReplays; i++) device_.replay();
      player_.wait();
      const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
      rounds.push_back(took.count() / (kGraphCalls * kGraphReplays));
    }
    if (const uint64_t wrong = player_.count_wrong(); wrong > 0)
      fail(ncclInternalError, "{} elements are wrong", wrong);
    rounds.erase(rounds.begin());
    std::sort(rounds.begin(), rounds.end());
    meet();
    return rounds[rounds.size() / 2];
  }

 private:
  void meet() {
    if (!meeting_.meet(ranks_)) fail(ncclRemoteError, "another rank has failed");
  }
  Communicator& comm_;
  GpuPlayer player_;
  cuda::RankDevice& device_;
  Meeting& meeting_;
  const int ranks_;
};

// The time of the slowest rank. `ring`: nullptr for packets.
double time_team(std::span<const int> devices,
                 const std::shared_ptr<const ImportedSchedules>& ring) {
  const auto n = static_cast<int>(devices.size());
  const Collective collective{
      ring == nullptr ? CollectiveKind::kAllReduce : CollectiveKind::kAllGather, n, 0};
  std::vector<std::unique_ptr<cuda::RankDevice>> memory;
  for (int rank = 0; rank < n; rank++)
    memory.push_back(std::make_unique<cuda::RankDevice>(
        devices[static_cast<size_t>(rank)],
        PlayedCall(collective, rank, kMessageCount, false).elements() * sizeof(uint32_t)));
  Meeting meeting;
  const auto reports = run_team(n, false, [&](int rank, const UniqueId& id) {
    try {
      cuda::RankDevice& device = *memory[static_cast<size_t>(rank)];
      CommunicatorOptions options{id, {}, rank, n, fmt::format("rank {} of {}", rank, n)};
      options.schedules = ring;
      options.device = device.device();
      options.issuer = static_cast<uint64_t>(rank) + 1;
      device.make_current();
      Communicator communicator(std::move(options));
      if (ring == nullptr) communicator.force_plan(collective.kind, &kOneShot);
      RankReport report;
      report.time_us[0] = MeteredRank(communicator, device, meeting, n).time(collective);
      return report;
    } catch (...) {
      meeting.give_up();
      throw;
    }
  });
  double slowest = 0;
  for (const RankReport& report : reports) {
    if (report.error[0] != '\0') fail(ncclInternalError, "{} GPUs: {}", n, report.error);
    slowest = std::max(slowest, report.time_us[0]);
  }
  return slowest;
}

}  // namespace

std::vector<OwnGpuTimes> time_own_gpus(std::span<const int> devices, const Machine& machine) {
  std::vector<OwnGpuTimes> teams;
  for (const int n : kTeamSizes) {
    if (static_cast<size_t>(n) > devices.size()) break;
    const auto team = devices.first(static_cast<size_t>(n));
    OwnGpuTimes times;
    times.ranks = n;
    for (size_t r = 0; r + 1 < team.size(); r++)
      times.way_us += way_us(machine, team[r], team[r + 1]) / static_cast<double>(n - 1);
    ScheduleFile file;
    file.schedule = kRing.make({CollectiveKind::kAllGather, n, 0}, false);
    times.ring_us = time_team(team, ImportedSchedules::only(file, "ring"));
    times.packets_us = time_team(team, nullptr);
    teams.push_back(times);
  }
  return teams;
}

}  // namespace weft
