// See schedule_cache.h.
#include "src/planner/schedule_cache.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "include/weft.h"
#include "src/base/error.h"
#include "src/base/handles.h"
#include "src/base/log.h"
#include "src/base/parallel_for.h"
#include "src/base/siphash.h"
#include "src/planner/schedule_maker.h"
#include "src/planner/synthesizer.h"
#include "src/topology/graph/fingerprint.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
using Outcome = ScheduleMaker::Outcome;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Init may take 0.15 s for a host of 8 GPUs and half a second for 128 GPUs. These times remain
// after reading and proving schedules and building the table.
constexpr double kOneHostSeconds = 0.06, kManyHostsSeconds = 0.2;

std::string why_not(const ImportedSchedule& schedule, const ScheduleTest& fits) {
  // Few calls are in place. Where a schedule does not serve these, generators do.
  if (schedule.out_of_place == nullptr) return "it serves calls in place only";
  return fits(schedule) ? "" : "its messages do not fit into the FIFOs (WEFT_RING_BYTES)";
}

// Stands for a schedule that is not there. A search that has more time may find it.
uint64_t hash_of_missing(const ScheduleMaker& maker, size_t number, const SynthesisTime& time) {
  if (!maker.searches_for(number)) return 0;
  return siphash(Secret{}, &time.seconds, sizeof time.seconds);
}

// Equal where the wanted schedules are, in this order.
uint64_t fingerprint_of(const std::vector<uint64_t>& hashes) {
  return siphash(Secret{}, hashes.data(), hashes.size() * sizeof(uint64_t));
}

// The calling thread works when nobody else wants the core.
void be_modest() {
  constexpr int kLowest = 19;
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowest);
}

// Schedules in the making. Threads that are late go on, for the cache.
struct Making {
  Making(const Config& config, const Machine& machine, const std::optional<LaneCosts>& costs,
         double seconds)
      : maker(config, machine, costs, seconds), outcomes(ScheduleMaker::wanted()) {}
  ScheduleMaker maker;
  std::mutex mutex;  // protects the rest
  std::condition_variable changed;
  std::vector<Outcome> outcomes;
  size_t next = 0, done = 0;

  void work() {
    for (;;) {
      size_t number = 0;
      {
        std::lock_guard lock(mutex);
        if (next == outcomes.size()) return;
        number = next++;
      }
      Outcome outcome;
      try {
        outcome = maker.get(number);
      } catch (const std::exception& error) {
        WEFT_INFO(kInit, "{} is not used: {}", ScheduleMaker::title(number), error.what());
      }
      std::lock_guard lock(mutex);
      outcomes[number] = std::move(outcome);
      done++;
      changed.notify_all();
    }
  }
};

// What was made until then. The rest counts as left.
std::vector<Outcome> make_until(const std::shared_ptr<Making>& making, Clock::time_point deadline) {
  std::vector<std::thread> threads;
  const size_t most =
      std::min<size_t>(making->outcomes.size(), static_cast<size_t>(usable_cores()));
  try {
    while (threads.size() < most) threads.emplace_back([making] { making->work(); });
  } catch (const std::system_error&) {
    // No more threads are available. The existing ones do the work.
    if (threads.empty()) making->work();
  }
  std::unique_lock lock(making->mutex);
  const auto finished = [&] { return making->done == making->outcomes.size(); };
  const bool in_time = making->changed.wait_until(lock, deadline, finished);
  std::vector<Outcome> outcomes = making->outcomes;
  for (size_t i = 0; i < outcomes.size() && !in_time; i++)
    if (outcomes[i].schedule == nullptr) outcomes[i].left = true;
  lock.unlock();
  for (std::thread& thread : threads) {
    if (in_time) {
      thread.join();
    } else {
      thread.detach();
    }
  }
  return outcomes;
}

// Makes all schedules of a machine for the cache. One process at a time; others find it locked.
void complete_cache(const Config& config, const Machine& machine,
                    const std::optional<LaneCosts>& costs) {
  be_modest();
  const auto begin = Clock::now();
  ScheduleMaker maker(config, machine, costs, config.background_seconds);
  std::error_code ignored;
  std::filesystem::create_directories(maker.folder(), ignored);
  const Fd lock(
      open((maker.folder() + "/lock").c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!lock || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return;
  int made = 0;
  for (size_t i = 0; i < ScheduleMaker::wanted(); i++) try {
      const double left = config.background_seconds - seconds_since(begin);
      if (left <= 0) break;
      const auto others = static_cast<double>(ScheduleMaker::shares(i));
      if (maker.complete(i, left / others)) made++;
    } catch (const std::exception& error) {
      WEFT_INFO(kInit, "{} is not made for the cache: {}", ScheduleMaker::title(i), error.what());
    }
  WEFT_INFO(kInit, "{}: {} schedules for later communicators, in {:.1f} s beside other work",
            maker.folder(), made, seconds_since(begin));
}

// Once per process and folder of schedules.
void complete_later(const Config& config, const Machine& machine,
                    const std::optional<LaneCosts>& costs, const std::string& folder) {
  static std::mutex mutex;
  static auto& begun = *std::make_unique<std::set<std::string>>().release();
  {
    std::lock_guard lock(mutex);
    if (!begun.insert(folder).second) return;
  }
  try {
    std::thread([config, machine, costs] {
      pthread_setname_np(pthread_self(), "weft-synthesis");
      complete_cache(config, machine, costs);
    }).detach();
  } catch (const std::system_error& error) {
    WEFT_INFO(kInit, "no thread for synthesis in the background: {}", error.what());
  }
}

}  // namespace

std::string plan_key(const Machine& machine) {
  // Schedules refer to ranks and links by number. So the key depends on their order too.
  std::string order;
  for (const Node& node : machine.nodes)
    order += fmt::format("{} {};", static_cast<int>(node.type), node.host);
  for (const Link& link : machine.links)
    order += fmt::format("{} {} {} {} {};", link.from, link.to, static_cast<int>(link.type),
                         link.gbps, link.us);
  return fmt::format("{}-{}-{:016x}", WEFT_VERSION_STRING, fingerprint_text(machine),
                     siphash(Secret{}, order.data(), order.size()));
}

double synthesis_seconds(const Config& config, const Machine& machine) {
  if (config.synthesis_seconds >= 0) return config.synthesis_seconds;
  const std::vector<int> nodes = gpus(machine);
  const bool one_host = std::all_of(nodes.begin(), nodes.end(), [&](int node) {
    return machine.nodes[static_cast<size_t>(node)].host ==
           machine.nodes[static_cast<size_t>(nodes[0])].host;
  });
  return one_host ? kOneHostSeconds : kManyHostsSeconds;
}

MadeSchedules schedules_for(const Config& config, const Machine& machine,
                            const std::optional<LaneCosts>& costs, const SynthesisTime& time,
                            const ScheduleTest& fits) {
  const auto begin = Clock::now();
  const auto making = std::make_shared<Making>(config, machine, costs, time.seconds);
  const auto deadline = time.most_seconds < 1e6
                            ? begin + std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(time.most_seconds))
                            : Clock::time_point::max();
  MadeSchedules result;
  std::vector<std::shared_ptr<const ImportedSchedule>> usable;
  std::vector<uint64_t> hashes;
  for (const Outcome& outcome : make_until(making, deadline)) {
    hashes.push_back(outcome.schedule == nullptr
                         ? hash_of_missing(making->maker, hashes.size(), time)
                         : outcome.schedule->hash);
    if (outcome.left) result.left++;
    if (outcome.schedule == nullptr) continue;
    if (const std::string why = why_not(*outcome.schedule, fits); !why.empty()) {
      WEFT_INFO(kTuning, "{} is not used: {}", outcome.schedule->path, why);
      continue;
    }
    (outcome.fetched ? result.fetched : result.made)++;
    if (outcome.cut_short) result.cut_short++;
    usable.push_back(outcome.schedule);
  }
  result.completes =
      result.left + result.cut_short > 0 && complete_cache_later(config, machine, costs, time);
  result.fingerprint = fingerprint_of(hashes);
  result.schedules = ImportedSchedules::of(usable);
  result.seconds = seconds_since(begin);
  return result;
}

KnownSchedules known_schedules(const Config& config, const Machine& machine,
                               const std::optional<LaneCosts>& costs, const SynthesisTime& time) {
  const ScheduleMaker maker(config, machine, costs, time.seconds);
  KnownSchedules result;
  std::vector<uint64_t> hashes;
  for (size_t i = 0; i < ScheduleMaker::wanted(); i++) {
    std::optional<ScheduleMaker::Known> known;
    if (maker.wants(i)) known = maker.find(i);
    if (!known) {
      hashes.push_back(hash_of_missing(maker, i, time));
      if (maker.searches_for(i)) {
        result.missing++;
      } else if (maker.wants(i) && can_synthesize(config)) {
        result.left++;
      }
      continue;
    }
    if (known->cut_short) result.cut_short++;
    hashes.push_back(siphash(Secret{}, known->text.data(), known->text.size()));
    result.all.push_back({std::move(known->title), known->collective, std::move(known->text)});
  }
  result.fingerprint = fingerprint_of(hashes);
  return result;
}

bool complete_cache_later(const Config& config, const Machine& machine,
                          const std::optional<LaneCosts>& costs, const SynthesisTime& time) {
  if (!time.background || config.background_seconds <= 0 || config.cache.empty() ||
      config.synthesis_seconds == 0 || !can_synthesize(config))
    return false;
  complete_later(config, machine, costs,
                 ScheduleMaker(config, machine, costs, time.seconds).folder());
  return true;
}

std::shared_ptr<const ImportedSchedule> prove_known(const KnownSchedule& known,
                                                    const ScheduleTest& fits) {
  auto schedule = ImportedSchedules::from_texts({{known.title, known.text}})->all().front();
  if (schedule->collective != known.collective)
    fail(ncclInvalidUsage, "{}: it is of another collective", known.title);
  if (const std::string why = why_not(*schedule, fits); !why.empty())
    fail(ncclInvalidUsage, "{}: {}", known.title, why);
  return schedule;
}

}  // namespace weft
