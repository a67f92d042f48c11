// See imported_schedules.h.
#include "src/planner/imported_schedules.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/once_cache.h"
#include "src/base/parallel_for.h"
#include "src/base/siphash.h"
#include "src/planner/schedule_paths.h"
#include "src/schedule/schedule_bytes.h"

namespace weft {
namespace {

constexpr int kMostFifoDepth = 64;

// Renumbers the channels between two ranks from 0 on. MSCCL numbers channels over all ranks, and
// every number in use costs FIFOs between every two ranks.
std::map<std::pair<int, int>, int> number_channels(Schedule& schedule) {
  const auto for_peers = [&](auto visit) {
    for (size_t r = 0; r < schedule.ranks.size(); r++)
      for (Lane& lane : schedule.ranks[r].lanes)
        for (Step& step : lane.steps)
          for (const bool sends : {false, true})
            for (Operand& o : sends ? step.to : step.from)
              if (o.kind == Operand::Kind::kPeer) {
                const auto here = static_cast<uint64_t>(r), there = static_cast<uint64_t>(o.index);
                visit((sends ? here << 24 | there : there << 24 | here) << 16, o);
              }
  };
  std::vector<uint64_t> used;  // source, destination, channel; sorted
  for_peers([&](uint64_t ends, const Operand& o) {
    const uint64_t fifo = ends | static_cast<uint16_t>(o.channel);
    if (used.empty() || used.back() != fifo) used.push_back(fifo);
  });
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  for_peers([&](uint64_t ends, Operand& o) {
    const auto first = std::lower_bound(used.begin(), used.end(), ends);
    const auto it = std::lower_bound(first, used.end(), ends | static_cast<uint16_t>(o.channel));
    o.channel = static_cast<int16_t>(it - first);
  });
  std::map<std::pair<int, int>, int> counts;
  for (size_t i = 0; i < used.size();) {
    size_t end = i;
    while (end < used.size() && used[end] >> 16 == used[i] >> 16) end++;
    const uint64_t ends = used[i] >> 16;
    if (end - i > 1)
      counts[{static_cast<int>(ends >> 24), static_cast<int>(ends & 0xffffff)}] =
          static_cast<int>(end - i);
    i = end;
  }
  return counts;
}

bool reaches_memory(const Schedule& schedule) {
  for (const RankSchedule& rank : schedule.ranks)
    for (const Lane& lane : rank.lanes)
      for (const Step& step : lane.steps) {
        if (step.count == 0 && !(step.from.empty() && step.to.empty())) return true;
        for (const auto* operands : {&step.from, &step.to})
          for (const Operand& o : *operands)
            if (o.kind == Operand::Kind::kRemote) return true;
      }
  return false;
}

// `text`: the file if it is Weft JSON already, so that it need not be written again.
std::shared_ptr<const ImportedSchedule> import(ScheduleFile file, const std::string& path,
                                               const std::string* text = nullptr) {
  auto imported = std::make_shared<ImportedSchedule>();
  const Collective c = file.schedule.collective;
  imported->path = path;
  if (c.kind == CollectiveKind::kSendRecv)
    fail(ncclInvalidUsage, "sends and receives are not chosen by schedule");
  if (reaches_memory(file.schedule))
    fail(ncclInvalidUsage, "it reaches into peers' memory, which host mode cannot");
  imported->channels = number_channels(file.schedule);
  // Without a text the file must be written, and keeps its schedule.
  const auto schedule =
      std::make_shared<const Schedule>(text != nullptr ? std::move(file.schedule) : file.schedule);
  ProvedFile proved = prove(file, schedule, kMostFifoDepth);
  if (c.rooted() && (proved.in_place == nullptr || proved.out_of_place == nullptr)) {
    file.in_place = file.out_of_place = file.modes_declared = true;
    try {
      proved = prove(file, schedule, kMostFifoDepth);
    } catch (const Error& error) {
      fail(ncclInvalidUsage,
           "it works {} only, and of a rooted collective's ranks only the root can know that: {}",
           proved.in_place != nullptr ? "in place" : "out of place", error.what());
    }
  }
  imported->in_place = proved.in_place;
  imported->out_of_place = proved.out_of_place;
  for (const auto& verified : {proved.in_place, proved.out_of_place}) {
    if (verified == nullptr) continue;
    imported->uniform_only |= verified->uniform_only();
    imported->fifo_depth = std::max(imported->fifo_depth, verified->least_fifo_depth());
  }
  imported->collective = c;
  imported->chunks = schedule->chunks;
  imported->min_bytes = file.min_bytes;
  imported->max_bytes = file.max_bytes;
  for (const RankSchedule& rank : schedule->ranks)
    for (const Lane& lane : rank.lanes)
      for (const Step& step : lane.steps)
        imported->most_step_chunks = std::max(imported->most_step_chunks, step.count);
  imported->text = text != nullptr ? *text : write_schedule_bytes(file);
  imported->hash = siphash(Secret{}, imported->text.data(), imported->text.size());
  return imported;
}

std::string describe_modes(const ImportedSchedule& s) {
  if (s.in_place == nullptr) return "out of place";
  return s.out_of_place == nullptr ? "in place" : "in place and out of place";
}

std::string describe_sizes(const ImportedSchedule& s) {
  if (s.max_bytes == ScheduleFile::kNoLimit) return fmt::format("{} bytes or more", s.min_bytes);
  return fmt::format("{} to {} bytes", s.min_bytes, s.max_bytes);
}

// Reads a file for communicators of `nranks` ranks and logs the outcome. nullptr: not usable.
std::shared_ptr<const ImportedSchedule> import_and_tell(const std::string& path, int nranks) {
  try {
    ScheduleFile file = load_schedule(path);
    if (file.schedule.collective.nranks != nranks) {
      WEFT_INFO(kInit, "schedule {} is not used in communicators of {} ranks: it is for {} ranks",
                path, nranks, file.schedule.collective.nranks);
      return nullptr;
    }
    auto imported = import(std::move(file), path);
    WEFT_INFO(kInit, "schedule {} is for {} of {} ranks, {}, {}", path,
              name(imported->collective.kind), nranks, describe_modes(*imported),
              describe_sizes(*imported));
    return imported;
  } catch (const Error& error) {
    WEFT_WARN("schedule {} is not used: {}", path, error.what());
    return nullptr;
  }
}

// The schedules that this process has read, for its other ranks and communicators. Thread-safe.
class ImportedScheduleCache {
 public:
  static ImportedScheduleCache& instance() {
    static ImportedScheduleCache& cache =
        *std::make_unique<ImportedScheduleCache>().release();  // exit handlers may need it
    return cache;
  }

  std::shared_ptr<const ImportedSchedule> get(const SchedulePath& file, int nranks) {
    return cache_.get({file.path, file.changed, file.size, nranks},
                      [&] { return import_and_tell(file.path, nranks); });
  }
  // A schedule from rank 0. Throws if it cannot be used.
  std::shared_ptr<const ImportedSchedule> get(const std::string& name, const std::string& text) {
    const uint64_t hash = siphash(Secret{}, text.data(), text.size());
    return cache_.get({name, static_cast<int64_t>(hash), text.size(), 0}, [&] {
      // Searches for several sizes often find the same schedule. It is proved once.
      const auto proved =
          texts_.get(text, [&] { return import(parse_schedule(text, name), name, &text); });
      auto renamed = std::make_shared<ImportedSchedule>(*proved);
      renamed->path = name;
      return std::shared_ptr<const ImportedSchedule>(renamed);
    });
  }

 private:
  using Key = std::tuple<std::string, int64_t, uint64_t, int>;
  OnceCache<Key, ImportedSchedule> cache_{4096};
  OnceCache<std::string, ImportedSchedule> texts_{1024};  // by the text itself
};

// Whether every call that `later` could serve goes to `earlier`.
bool hides(const ImportedSchedule& earlier, const ImportedSchedule& later) {
  return earlier.collective == later.collective && !earlier.uniform_only && !earlier.lossy() &&
         earlier.min_bytes <= later.min_bytes && earlier.max_bytes >= later.max_bytes &&
         (earlier.in_place != nullptr || later.in_place == nullptr) &&
         (earlier.out_of_place != nullptr || later.out_of_place == nullptr);
}

}  // namespace

int ImportedSchedule::cpu_nodes() const {
  int most = 0;
  for (const auto& verified : {in_place, out_of_place})
    if (verified != nullptr) most = std::max(most, verified->schedule().cpu_nodes);
  return most;
}

const std::vector<CodecSpec>& ImportedSchedule::codecs() const {
  return (in_place != nullptr ? in_place : out_of_place)->schedule().codecs;
}

bool ImportedSchedule::lossy() const {
  const auto& all = codecs();
  return std::any_of(all.begin(), all.end(),
                     [](const CodecSpec& spec) { return spec.kind != Codec::kWiden; });
}

PlanCall PlanCall::of_size(const Collective& collective, size_t bytes) {
  PlanCall call;
  call.collective = collective;
  call.bytes = bytes;
  call.count = bytes / static_cast<size_t>(collective.array_blocks());
  return call;
}

PlanCall PlanCall::of_floats(const Collective& collective, size_t bytes) {
  PlanCall call = of_size(collective, bytes);
  if (bytes % (sizeof(float) * static_cast<size_t>(collective.array_blocks())) != 0) return call;
  call.count /= sizeof(float);
  call.element = sizeof(float);
  call.numbers = Numbers::kFloatSums;
  return call;
}

Unfit unfit(const ImportedSchedule& s, const PlanCall& call) {
  if (s.collective.rooted() && s.collective.root != call.collective.root) return Unfit::kRoot;
  if ((call.in_place ? s.in_place : s.out_of_place) == nullptr) return Unfit::kMode;
  if (call.bytes < s.min_bytes || call.bytes > s.max_bytes) return Unfit::kSize;
  if (s.uniform_only && call.count % static_cast<size_t>(s.chunks) != 0) return Unfit::kCount;
  if (call.captured && s.cpu_nodes() > 0) return Unfit::kCaptured;
  if (!s.codecs().empty() && call.numbers != PlanCall::Numbers::kFloatSums) return Unfit::kNumbers;
  return Unfit::kNone;
}

std::string describe(Unfit why, const ImportedSchedule& s) {
  switch (why) {
    case Unfit::kRoot:
      return fmt::format("it is for root {}", s.collective.root);
    case Unfit::kMode:
      return fmt::format("it is for calls {}", describe_modes(s));
    case Unfit::kSize:
      return fmt::format("it is for {}", describe_sizes(s));
    case Unfit::kCount:
      return fmt::format("it is for counts that divide by {}", s.chunks);
    case Unfit::kCaptured:
      return "its CPU nodes do not hear of the replays of a graph";
    case Unfit::kNumbers:
      return "its codecs are for sums of float32, float16 and bfloat16";
    case Unfit::kLossy:
      return "its codecs lose something, and compression does not allow that "
             "(WEFT_COMPRESS=imported does)";
    case Unfit::kNone:
      break;
  }
  return "";
}

std::shared_ptr<const ImportedSchedules> ImportedSchedules::load(const Config& config, int nranks,
                                                                 bool tell) {
  auto schedules = std::make_shared<ImportedSchedules>();
  for (const SchedulePath& file : schedule_paths(config)) {
    auto imported = ImportedScheduleCache::instance().get(file, nranks);
    if (imported == nullptr) continue;
    const auto hiding =
        std::find_if(schedules->all_.begin(), schedules->all_.end(),
                     [&](const auto& earlier) { return hides(*earlier, *imported); });
    if (hiding != schedules->all_.end()) {
      if (tell)
        WEFT_INFO(kInit, "schedule {} is not used: {}, named earlier, serves the same calls",
                  file.path, (*hiding)->path);
      continue;
    }
    schedules->add(std::move(imported));
  }
  return schedules;
}

std::shared_ptr<const ImportedSchedules> ImportedSchedules::only(const ScheduleFile& file,
                                                                 const std::string& path) {
  auto schedules = std::make_shared<ImportedSchedules>();
  schedules->add(import(file, path));
  return schedules;
}

std::shared_ptr<const ImportedSchedules> ImportedSchedules::from_texts(
    const std::vector<std::pair<std::string, std::string>>& files) {
  std::vector<std::shared_ptr<const ImportedSchedule>> list(files.size());
  parallel_for(files.size(), [&] {
    return [&](size_t i) {
      list[i] = ImportedScheduleCache::instance().get(files[i].first, files[i].second);
    };
  });
  return of(list);
}

std::shared_ptr<const ImportedSchedules> ImportedSchedules::of(
    const std::vector<std::shared_ptr<const ImportedSchedule>>& list) {
  auto schedules = std::make_shared<ImportedSchedules>();
  for (const auto& schedule : list) schedules->add(schedule);
  return schedules;
}

std::shared_ptr<const ImportedSchedules> ImportedSchedules::both(const ImportedSchedules& first,
                                                                 const ImportedSchedules& second) {
  auto schedules = std::make_shared<ImportedSchedules>(first);
  for (const auto& schedule : second.all_) schedules->add(schedule);
  return schedules;
}

void ImportedSchedules::add(std::shared_ptr<const ImportedSchedule> schedule) {
  const uint64_t chain[] = {fingerprint_, schedule->hash};
  fingerprint_ = siphash(Secret{}, chain, sizeof chain);
  for (const auto& [ends, count] : schedule->channels)
    most_channels_ = std::max(most_channels_, count);
  all_.push_back(std::move(schedule));
}

int ImportedSchedules::channels(int source, int destination) const {
  int most = 0;
  for (const auto& schedule : all_)
    if (const auto it = schedule->channels.find({source, destination});
        it != schedule->channels.end())
      most = std::max(most, it->second);
  return most;
}

}  // namespace weft
