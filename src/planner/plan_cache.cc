// See plan_cache.h.
#include "src/planner/plan_cache.h"

#include <chrono>
#include <filesystem>
#include <optional>

#include "include/weft.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/siphash.h"
#include "src/planner/cached_file.h"
#include "src/planner/synthesizer.h"
#include "src/topology/fingerprint.h"

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

// Schedules for more ranks take seconds each: nobody waits for them at init who has not asked to.
constexpr size_t kMostQuickRanks = 32;
constexpr double kPatient = 1;

// One is for several sizes, so its name says which it was made for.
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

class Maker {
 public:
  Maker(const Config& config, const Machine& machine, double seconds)
      : config_(config), machine_(machine), seconds_(seconds) {
    if (!config.cache.empty()) folder_ = config.cache + "/plans-" + plan_key(machine);
  }

  std::shared_ptr<const ImportedSchedule> get(const Wanted& wanted, MadeSchedules& result) {
    const std::string name = title_of(wanted);
    const std::string path = folder_.empty() ? "" : folder_ + "/" + name + ".json";
    std::error_code ignored;
    if (!path.empty() && std::filesystem::exists(path, ignored)) {
      try {
        auto schedule = import_text(name, read_cached(path));
        if (schedule->collective !=
            Collective{wanted.kind, static_cast<int>(gpus(machine_).size()), 0})
          fail(ncclInvalidUsage, "{}: it is of another collective", path);
        result.fetched++;
        return schedule;
      } catch (const Error& error) {
        WEFT_WARN("{}: a cached plan is not used: {}", path, error.what());
      }
    }
    const double left = seconds_ - seconds_since(begin_);
    if (left <= 0 || (gpus(machine_).size() > kMostQuickRanks && seconds_ < kPatient))
      return nullptr;
    const auto text = synthesize_apart(config_, machine_, wanted.kind, wanted.bytes, left);
    if (!text) return nullptr;
    auto schedule = import_text(name, *text);
    result.made++;
    if (!path.empty()) keep(path, *text);
    return schedule;
  }

 private:
  void keep(const std::string& path, const std::string& text) {
    if (!writable_) return;
    try {
      write_cached(path, text);
    } catch (const Error& error) {
      writable_ = false;
      WEFT_INFO(kInit, "plans are not kept: {}", error.what());
    }
  }

  const Config& config_;
  const Machine& machine_;
  const double seconds_;
  const Clock::time_point begin_ = Clock::now();
  std::string folder_;
  bool writable_ = true;
};

}  // namespace

std::string plan_key(const Machine& machine) {
  // Schedules number ranks and links: machines that differ in their order alone differ here.
  std::string order;
  for (const Node& node : machine.nodes)
    order += fmt::format("{} {};", static_cast<int>(node.type), node.host);
  for (const Link& link : machine.links)
    order += fmt::format("{} {} {} {} {};", link.from, link.to, static_cast<int>(link.type),
                         link.gbps, link.us);
  return fmt::format("{}-{}-{:016x}", WEFT_VERSION_STRING, fingerprint_text(machine),
                     siphash(Secret{}, order.data(), order.size()));
}

MadeSchedules schedules_for(const Config& config, const Machine& machine, double seconds,
                            const ScheduleTest& fits) {
  const auto begin = Clock::now();
  MadeSchedules result;
  std::vector<std::pair<std::string, std::string>> usable;
  Maker maker(config, machine, seconds);
  for (const Wanted& wanted : kWanted) {
    try {
      const auto schedule = maker.get(wanted, result);
      if (schedule == nullptr) continue;
      const std::string why = why_not(*schedule, fits);
      if (why.empty()) {
        usable.emplace_back(schedule->path, schedule->text);
      } else {
        WEFT_INFO(kTuning, "{} is not used: {}", schedule->path, why);
      }
    } catch (const Error& error) {
      WEFT_INFO(kInit, "{} is not used: {}", title_of(wanted), error.what());
    }
  }
  result.schedules = ImportedSchedules::from_texts(usable);
  result.seconds = seconds_since(begin);
  return result;
}

}  // namespace weft
