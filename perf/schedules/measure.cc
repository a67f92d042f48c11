// See measure.h.
#include "perf/schedules/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "perf/common/errors.h"
#include "src/base/error.h"
#include "src/tools/gpu_player.h"

namespace weft::perf::schedules {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUp = 3, kRepetitions = 7;
constexpr uint64_t kChecked = 1 << 16;  // elements at either end

// Calls in a repetition, and in a graph.
int batch(uint64_t bytes) { return bytes <= (1 << 20) ? 20 : 4; }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// What the ranks share.
struct Team {
  Team(const ImportedSchedule& s, std::span<const uint64_t> bytes)
      : schedule(s),
        in_place(s.out_of_place == nullptr),
        sizes(bytes),
        everyone(s.collective.nranks),
        times(bytes.size(), std::vector<Times>(static_cast<size_t>(s.collective.nranks))) {}

  uint64_t count(uint64_t bytes) const {
    return PlayedCall::count_for(
        schedule.collective, bytes,
        schedule.uniform_only ? static_cast<uint64_t>(schedule.chunks) : 1);
  }

  const ImportedSchedule& schedule;
  const bool in_place;
  const std::span<const uint64_t> sizes;
  std::barrier<> everyone;
  std::vector<std::vector<Times>> times;  // per size and rank
};

class RankMeter {
 public:
  RankMeter(Team& team, Communicator& communicator, cuda::RankDevice& device)
      : team_(team), rank_(communicator.rank()), device_(device), player_(communicator, device) {}

  Times measure(uint64_t bytes) {
    const PlayedCall call(team_.schedule.collective, rank_, team_.count(bytes), team_.in_place);
    player_.take(call);
    Times times;
    begin();
    player_.run();
    times.wrong = player_.count_wrong_at_ends(kChecked);
    const int calls = batch(bytes);
    const auto launch_all = [&] {
      for (int i = 0; i < calls; i++) player_.launch();
    };
    for (int i = 0; i < kWarmUp; i++) timed(calls, launch_all);
    times.stream_us = median_of(calls, launch_all);
    begin();
    device_.record(launch_all);
    const auto replay = [&] { device_.replay(); };
    timed(calls, replay);  // the first launch does not count
    // In place every call changes the input of the next.
    if (!team_.in_place) times.wrong += player_.count_wrong_at_ends(kChecked);
    times.graph_us = median_of(calls, replay);
    meet();
    return times;
  }

 private:
  void meet() { team_.everyone.arrive_and_wait(); }

  // Fresh data everywhere, and nobody's kernel waits.
  void begin() {
    meet();
    player_.fill();
    meet();
  }

  // Microseconds a call, all of the work waited for; ranks begin together.
  template <typename Work>
  double timed(int calls, const Work& work) {
    meet();
    const auto began = Clock::now();
    work();
    player_.wait();
    return std::chrono::duration<double, std::micro>(Clock::now() - began).count() / calls;
  }
  template <typename Work>
  double median_of(int calls, const Work& work) {
    std::vector<double> us;
    for (int i = 0; i < kRepetitions; i++) us.push_back(timed(calls, work));
    return median(us);
  }

  Team& team_;
  const int rank_;
  cuda::RankDevice& device_;
  GpuPlayer player_;
};

void play_rank(Team& team, const std::shared_ptr<const ImportedSchedules>& schedules,
               const UniqueId& id, int rank, cuda::RankDevice& device) {
  device.make_current();
  const int nranks = team.schedule.collective.nranks;
  CommunicatorOptions options{id, {}, rank, nranks, fmt::format("rank {} of {}", rank, nranks)};
  options.schedules = schedules;
  options.device = device.device();
  options.issuer = static_cast<uint64_t>(rank) + 1;
  Communicator communicator(std::move(options));
  RankMeter meter(team, communicator, device);
  for (size_t i = 0; i < team.sizes.size(); i++)
    team.times[i][static_cast<size_t>(rank)] = meter.measure(team.sizes[i]);
  team.everyone.arrive_and_wait();
}

}  // namespace

std::vector<Times> measure(const std::shared_ptr<const ImportedSchedules>& schedules,
                           std::span<const uint64_t> sizes) {
  const ImportedSchedule& schedule = *schedules->all().front();
  const Collective c = schedule.collective;
  Team team(schedule, sizes);
  const uint64_t most = team.count(*std::max_element(sizes.begin(), sizes.end()));
  std::vector<std::unique_ptr<cuda::RankDevice>> devices;
  for (int rank = 0; rank < c.nranks; rank++)
    devices.push_back(std::make_unique<cuda::RankDevice>(
        0, PlayedCall(c, rank, most, team.in_place).elements() * sizeof(uint32_t)));
  const UniqueId id = UniqueId::create();
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < c.nranks; rank++)
    ranks.emplace_back([&, rank] {
      try {
        play_rank(team, schedules, id, rank, *devices[static_cast<size_t>(rank)]);
      } catch (const std::exception& error) {
        fmt::print(stderr, "schedule_perf: {}: rank {}: {}\n", schedule.path, rank, error.what());
        std::_Exit(kExitLibrary);
      }
    });
  ranks.clear();
  std::vector<Times> result;
  for (size_t i = 0; i < sizes.size(); i++) {
    Times& all = result.emplace_back();
    all.bytes = team.count(sizes[i]) * static_cast<uint64_t>(c.array_blocks()) * sizeof(uint32_t);
    for (const Times& times : team.times[i]) {
      all.stream_us = std::max(all.stream_us, times.stream_us);
      all.graph_us = std::max(all.graph_us, times.graph_us);
      all.wrong += times.wrong;
    }
  }
  return result;
}

}  // namespace weft::perf::schedules
