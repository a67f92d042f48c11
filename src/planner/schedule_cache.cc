// See schedule_cache.h.
#include "src/planner/schedule_cache.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>

#include "include/weft.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/parallel_for.h"
#include "src/base/siphash.h"
#include "src/planner/cached_file.h"
#include "src/planner/synthesizer.h"
#include "src/schedule/schedule_bytes.h"
#include "src/topology/graph/fingerprint.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Wanted {
  CollectiveKind kind;
  double bytes;
};
constexpr double kLargeArray = 64 << 20, kSmallArray = 64 << 10;
constexpr Wanted kWanted[] = {
    {CollectiveKind::kAllReduce, kLargeArray},     {CollectiveKind::kAllGather, kLargeArray},
    {CollectiveKind::kReduceScatter, kLargeArray}, {CollectiveKind::kBroadcast, kLargeArray},
    {CollectiveKind::kReduce, kLargeArray},        {CollectiveKind::kAllToAll, kLargeArray},
    {CollectiveKind::kAllReduce, kSmallArray},     {CollectiveKind::kAllGather, kSmallArray},
    {CollectiveKind::kReduceScatter, kSmallArray}, {CollectiveKind::kBroadcast, kSmallArray},
    {CollectiveKind::kReduce, kSmallArray}};

// A search for more ranks takes seconds, too long for init unless the user asks for it.
constexpr size_t kMostSearchedRanks = 32;
constexpr size_t kWantedOfMany = 5;  // the first of kWanted

// Init may take 0.15 s for one host and half a second for 128 GPUs. These times remain after
// reading and proving schedules and building the table.
constexpr double kOneHostSeconds = 0.06, kManyHostsSeconds = 0.2;

// A schedule serves several sizes. Its name says which size it was made for.
std::string title_of(const Wanted& wanted) {
  return fmt::format("synth-{}-{}", name(wanted.kind),
                     wanted.bytes == kLargeArray ? "large" : "small");
}

std::shared_ptr<const ImportedSchedule> import_text(const std::string& name,
                                                    const std::string& text) {
  return ImportedSchedules::from_texts({{name, text}})->all().front();
}

std::string why_not(const ImportedSchedule& schedule, const ScheduleTest& fits) {
  if (schedule.in_place == nullptr || schedule.out_of_place == nullptr)
    return "it does not serve calls in place";
  return fits(schedule) ? "" : "its messages do not fit into the FIFOs (WEFT_RING_BYTES)";
}

struct Outcome {
  std::shared_ptr<const ImportedSchedule> schedule;
  bool fetched = false, left = false, cut_short = false;
};

// Thread-safe.
class Maker {
 public:
  Maker(const Config& config, const Machine& machine, double seconds)
      : config_(config), machine_(machine), seconds_(seconds) {
    ranks_ = static_cast<int>(gpus(machine).size());
    searches_ = gpus(machine).size() <= kMostSearchedRanks || seconds >= kPatientSeconds;
    if (!config.cache.empty()) folder_ = config.cache + "/plans-" + plan_key(machine);
  }

  size_t wanted() const { return searches_ ? std::size(kWanted) : kWantedOfMany; }

  Outcome get(size_t number) {
    const Wanted& wanted = kWanted[number];
    const std::string name = title_of(wanted);
    Outcome outcome;
    if ((outcome.schedule = fetch(wanted, name, "")) != nullptr) {
      outcome.fetched = true;
      return outcome;
    }
    if (seconds_ < kPatientSeconds && (outcome.schedule = fetch(wanted, name, kQuick)) != nullptr) {
      outcome.fetched = outcome.cut_short = true;
      return outcome;
    }
    const double left = seconds_ - seconds_since(begin_);
    // Plans for small arrays take longest to start.
    const bool long_work = wanted.bytes == kSmallArray && seconds_ < kPatientSeconds;
    if (left <= (long_work ? seconds_ / 2 : 0)) {
      outcome.left = can_synthesize(config_);
      return outcome;
    }
    const double after = static_cast<double>(this->wanted() - number);
    const double share = left * std::min(1.0, usable_cores() / after);
    const auto made =
        synthesize_apart(config_, machine_, wanted.kind, wanted.bytes, searches_ ? share : 0);
    if (!made) return outcome;
    const std::string bytes = write_schedule_bytes(parse_schedule(made->text, name));
    outcome.schedule = import_text(name, bytes);
    outcome.cut_short = made->cut_short;
    if (!folder_.empty()) keep(path_of(name, made->cut_short ? kQuick : ""), bytes);
    return outcome;
  }

 private:
  // Schedules that a longer search may replace.
  static constexpr const char* kQuick = "-quick";

  std::string path_of(const std::string& name, const char* kind) const {
    return fmt::format("{}/{}{}.schedule", folder_, name, kind);
  }

  // nullptr: missing or unusable.
  std::shared_ptr<const ImportedSchedule> fetch(const Wanted& wanted, const std::string& name,
                                                const char* kind) const {
    if (folder_.empty()) return nullptr;
    const std::string path = path_of(name, kind);
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return nullptr;
    try {
      auto schedule = import_text(name, read_cached(path));
      if (schedule->collective != Collective{wanted.kind, ranks_, 0})
        fail(ncclInvalidUsage, "{}: it is of another collective", path);
      return schedule;
    } catch (const Error& error) {
      WEFT_WARN("{}: a cached plan is not used: {}", path, error.what());
      return nullptr;
    }
  }

  void keep(const std::string& path, const std::string& text) {
    if (!writable_) return;
    try {
      write_cached(path, text);
    } catch (const Error& error) {
      if (writable_.exchange(false)) WEFT_INFO(kInit, "plans are not kept: {}", error.what());
    }
  }

  const Config& config_;
  const Machine& machine_;
  const double seconds_;
  const Clock::time_point begin_ = Clock::now();
  int ranks_ = 0;
  bool searches_ = true;
  std::string folder_;
  std::atomic<bool> writable_{true};
};

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

MadeSchedules schedules_for(const Config& config, const Machine& machine, double seconds,
                            const ScheduleTest& fits) {
  const auto begin = Clock::now();
  Maker maker(config, machine, seconds);
  std::vector<Outcome> outcomes(maker.wanted());
  parallel_for(outcomes.size(), [&] {
    return [&](size_t i) {
      try {
        outcomes[i] = maker.get(i);
        if (outcomes[i].schedule == nullptr) return;
        const std::string why = why_not(*outcomes[i].schedule, fits);
        if (why.empty()) return;
        WEFT_INFO(kTuning, "{} is not used: {}", outcomes[i].schedule->path, why);
      } catch (const Error& error) {
        WEFT_INFO(kInit, "{} is not used: {}", title_of(kWanted[i]), error.what());
      }
      outcomes[i] = {};
    };
  });
  MadeSchedules result;
  std::vector<std::shared_ptr<const ImportedSchedule>> usable;
  for (const Outcome& outcome : outcomes) {
    if (outcome.left) result.left++;
    if (outcome.schedule == nullptr) continue;
    (outcome.fetched ? result.fetched : result.made)++;
    if (outcome.cut_short) result.cut_short++;
    usable.push_back(outcome.schedule);
  }
  result.schedules = ImportedSchedules::of(usable);
  result.seconds = seconds_since(begin);
  return result;
}

}  // namespace weft
