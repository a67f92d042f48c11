// See schedule_maker.h.
#include "src/planner/schedule_maker.h"

#include <algorithm>
#include <filesystem>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/parallel_for.h"
#include "src/base/siphash.h"
#include "src/planner/cached_file.h"
#include "src/planner/schedule_cache.h"
#include "src/planner/synthesizer.h"
#include "src/schedule/schedule_bytes.h"

namespace weft {
namespace {

struct Wanted {
  CollectiveKind kind;
  double bytes;
};
constexpr double kHugeArray = 1 << 30, kLargeArray = 64 << 20, kMediumArray = 4 << 20,
                 kSmallArray = 64 << 10, kTinyArray = 1 << 10;
// Between them other schedules may be up to 1.4 times as fast. These are made only with patience.
constexpr double kLittleArray = 16 << 10, kModestArray = 256 << 10, kMiddleArray = 1 << 20,
                 kBigArray = 16 << 20;
constexpr Wanted kWanted[] = {
    {CollectiveKind::kAllReduce, kLargeArray},      {CollectiveKind::kAllGather, kLargeArray},
    {CollectiveKind::kReduceScatter, kLargeArray},  {CollectiveKind::kBroadcast, kLargeArray},
    {CollectiveKind::kReduce, kLargeArray},         {CollectiveKind::kAllToAll, kLargeArray},
    {CollectiveKind::kAllReduce, kSmallArray},      {CollectiveKind::kAllGather, kSmallArray},
    {CollectiveKind::kReduceScatter, kSmallArray},  {CollectiveKind::kBroadcast, kSmallArray},
    {CollectiveKind::kReduce, kSmallArray},         {CollectiveKind::kAllReduce, kMediumArray},
    {CollectiveKind::kAllGather, kMediumArray},     {CollectiveKind::kReduceScatter, kMediumArray},
    {CollectiveKind::kBroadcast, kMediumArray},     {CollectiveKind::kReduce, kMediumArray},
    {CollectiveKind::kAllReduce, kTinyArray},       {CollectiveKind::kAllGather, kTinyArray},
    {CollectiveKind::kReduceScatter, kTinyArray},   {CollectiveKind::kBroadcast, kTinyArray},
    {CollectiveKind::kReduce, kTinyArray},          {CollectiveKind::kAllReduce, kHugeArray},
    {CollectiveKind::kAllGather, kHugeArray},       {CollectiveKind::kReduceScatter, kHugeArray},
    {CollectiveKind::kBroadcast, kHugeArray},       {CollectiveKind::kReduce, kHugeArray},
    {CollectiveKind::kAllReduce, kMiddleArray},     {CollectiveKind::kAllGather, kMiddleArray},
    {CollectiveKind::kReduceScatter, kMiddleArray}, {CollectiveKind::kBroadcast, kMiddleArray},
    {CollectiveKind::kReduce, kMiddleArray},        {CollectiveKind::kAllReduce, kModestArray},
    {CollectiveKind::kAllGather, kModestArray},     {CollectiveKind::kReduceScatter, kModestArray},
    {CollectiveKind::kBroadcast, kModestArray},     {CollectiveKind::kReduce, kModestArray},
    {CollectiveKind::kAllReduce, kBigArray},        {CollectiveKind::kAllGather, kBigArray},
    {CollectiveKind::kReduceScatter, kBigArray},    {CollectiveKind::kBroadcast, kBigArray},
    {CollectiveKind::kReduce, kBigArray},           {CollectiveKind::kAllReduce, kLittleArray},
    {CollectiveKind::kAllGather, kLittleArray},     {CollectiveKind::kReduceScatter, kLittleArray},
    {CollectiveKind::kBroadcast, kLittleArray},     {CollectiveKind::kReduce, kLittleArray}};
constexpr size_t kWantedAtOnce = 26;  // the others wait for more time, or for the background

// A search for more ranks takes seconds, too long for init unless the user asks for it.
constexpr size_t kMostSearchedRanks = 32;
constexpr size_t kWantedOfMany = 5;  // the first of kWanted

// Schedules that a longer search may replace.
constexpr const char* kQuick = "-quick";

std::shared_ptr<const ImportedSchedule> import_text(const std::string& name,
                                                    const std::string& text) {
  return ImportedSchedules::from_texts({{name, text}})->all().front();
}

// Schedules for other costs are other schedules.
std::string costs_key(const std::optional<LaneCosts>& costs) {
  if (!costs) return "";
  const LaneCut& cut = costs->cut;
  const std::string text =
      fmt::format("{} {} {} {} {} {} {}", costs->step_us, costs->message_us, cut.blocks,
                  cut.fifo_bytes, cut.pool_bytes, cut.shared_pool, cut.slots);
  return fmt::format("-{:016x}", siphash(Secret{}, text.data(), text.size()));
}

double elapsed_seconds(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

ScheduleMaker::ScheduleMaker(const Config& config, const Machine& machine,
                             const std::optional<LaneCosts>& costs, double seconds)
    : config_(config), machine_(machine), costs_(costs), seconds_(seconds) {
  const size_t ranks = gpus(machine).size();
  ranks_ = static_cast<int>(ranks);
  searches_ = ranks <= kMostSearchedRanks || seconds >= kPatientSeconds;
  if (!config.cache.empty())
    folder_ = config.cache + "/plans-" + plan_key(machine) + costs_key(costs);
}

size_t ScheduleMaker::wanted() { return std::size(kWanted); }

// The first ones share all the time. The others get what they leave.
size_t ScheduleMaker::shares(size_t number) {
  return (number < kWantedAtOnce ? kWantedAtOnce : wanted()) - number;
}

// A schedule serves several sizes. Its name says which size it was made for.
std::string ScheduleMaker::title(size_t number) {
  const Wanted& wanted = kWanted[number];
  const char* size = wanted.bytes == kHugeArray     ? "huge"
                     : wanted.bytes == kLargeArray  ? "large"
                     : wanted.bytes == kMediumArray ? "medium"
                     : wanted.bytes == kSmallArray  ? "small"
                     : wanted.bytes == kTinyArray   ? "tiny"
                     : wanted.bytes == kLittleArray ? "little"
                     : wanted.bytes == kModestArray ? "modest"
                     : wanted.bytes == kMiddleArray ? "middle"
                                                    : "big";
  return fmt::format("synth-{}-{}", name(wanted.kind), size);
}

bool ScheduleMaker::wants(size_t number) const { return costs_ || number < kWantedAtOnce; }

bool ScheduleMaker::searches_for(size_t number) const {
  const bool in_turn = number < kWantedAtOnce || seconds_ >= kPatientSeconds;
  return wants(number) && in_turn && seconds_ > 0 && (searches_ || number < kWantedOfMany) &&
         can_synthesize(config_);
}

ScheduleMaker::Outcome ScheduleMaker::get(size_t number) {
  Outcome outcome;
  if (!wants(number)) return outcome;
  if ((outcome.schedule = fetch(number, "")) != nullptr) {
    outcome.fetched = true;
    return outcome;
  }
  if (seconds_ < kPatientSeconds && (outcome.schedule = fetch(number, kQuick)) != nullptr) {
    outcome.fetched = outcome.cut_short = true;
    return outcome;
  }
  const Wanted& task = kWanted[number];
  const double left = seconds_ - elapsed_seconds(begin_);
  // Plans for small arrays take longest to start.
  const bool long_work = task.bytes != kLargeArray && seconds_ < kPatientSeconds;
  if (!searches_for(number) || left <= (long_work ? seconds_ / 2 : 0)) {
    outcome.left = can_synthesize(config_);
    return outcome;
  }
  const auto after = static_cast<double>(shares(number));
  const double share = left * std::min(1.0, usable_cores() / after);
  const auto made =
      synthesize_apart(config_, machine_, task.kind, task.bytes, costs_, searches_ ? share : 0);
  if (!made) return outcome;
  const std::string bytes = write_schedule_bytes(parse_schedule(made->text, title(number)));
  outcome.schedule = import_text(title(number), bytes);
  outcome.cut_short = made->cut_short;
  keep(path_of(title(number), made->cut_short ? kQuick : ""), bytes);
  return outcome;
}

std::optional<ScheduleMaker::Known> ScheduleMaker::find(size_t number) const {
  if (folder_.empty()) return std::nullopt;
  Known known{title(number), {kWanted[number].kind, ranks_, 0}, "", false};
  std::error_code ignored;
  std::string path = path_of(known.title, "");
  if (!std::filesystem::exists(path, ignored)) {
    path = path_of(known.title, kQuick);
    known.cut_short = true;
    if (seconds_ >= kPatientSeconds || !std::filesystem::exists(path, ignored)) return std::nullopt;
  }
  try {
    known.text = read_cached(path);
  } catch (const Error&) {
    return std::nullopt;
  }
  return known;
}

bool ScheduleMaker::complete(size_t number, double seconds) {
  std::error_code ignored;
  const std::string path = path_of(title(number), "");
  if (folder_.empty() || !wants(number) || std::filesystem::exists(path, ignored)) return false;
  const Wanted& wanted = kWanted[number];
  const auto made = synthesize_apart(config_, machine_, wanted.kind, wanted.bytes, costs_, seconds);
  if (!made) return false;
  const std::string bytes = write_schedule_bytes(parse_schedule(made->text, title(number)));
  import_text(title(number), bytes);  // proves it
  keep(path, bytes);
  return true;
}

std::string ScheduleMaker::path_of(const std::string& name, const char* kind) const {
  return fmt::format("{}/{}{}.schedule", folder_, name, kind);
}

// nullptr: missing or unusable.
std::shared_ptr<const ImportedSchedule> ScheduleMaker::fetch(size_t number,
                                                             const char* kind) const {
  if (folder_.empty()) return nullptr;
  const std::string path = path_of(title(number), kind);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return nullptr;
  try {
    auto schedule = import_text(title(number), read_cached(path));
    if (schedule->collective != Collective{kWanted[number].kind, ranks_, 0})
      fail(ncclInvalidUsage, "{}: it is of another collective", path);
    return schedule;
  } catch (const Error& error) {
    WEFT_WARN("{}: a cached plan is not used: {}", path, error.what());
    return nullptr;
  }
}

void ScheduleMaker::keep(const std::string& path, const std::string& text) {
  if (folder_.empty() || !writable_) return;
  try {
    write_cached(path, text);
  } catch (const Error& error) {
    if (writable_.exchange(false)) WEFT_INFO(kInit, "plans are not kept: {}", error.what());
  }
}

}  // namespace weft
