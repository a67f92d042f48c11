// See cached_table.h.
#include "src/planner/cached_table.h"

#include <fmt/format.h>

#include <filesystem>

#include "algorithms/generators/generators.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/siphash.h"
#include "src/planner/cached_file.h"
#include "src/planner/schedule_cache.h"

namespace weft {
namespace {

// Differs if anything differs that a table of simulated times depends on.
std::string table_name(const Config& config, const TableRequest& request, uint64_t schedules) {
  std::string text = fmt::format("11 {} {} {} {} {} {} {}", request.nranks, request.rules.plan,
                                 request.rules.max_channels, request.simulation.most_slices,
                                 schedules, request.setting.no_cpu_nodes, config.ring_bytes);
  text += fmt::format(" {} {} {} {} {} {}", static_cast<int>(request.path), request.call_us,
                      request.simulation.step_us, request.simulation.message_us, request.packets,
                      request.patient);
  if (request.kernels) text += fmt::format(" {}", request.kernels->step_us);
  if (request.lanes)
    text += fmt::format(" {} {} {} {} {} {}", request.lanes->blocks, request.lanes->fifo_bytes,
                        request.lanes->pool_bytes, request.lanes->shared_pool, request.lanes->slots,
                        request.lane_start_us);
  for (const NcclChoice* choice : {&request.rules.algorithms, &request.rules.protocols})
    for (const unsigned allowed : choice->allowed) text += fmt::format(" {}", allowed);
  return fmt::format("table-{}-{:016x}", plan_key(*request.machine),
                     siphash(Secret{}, text.data(), text.size()));
}

// Whether tables have the generator on this path (table_builder.cc).
bool runs_on(const Generator& generator, PlanPath path) {
  if (path == PlanPath::kLoadStore) return generator.name == kPeerMemory.name;
  if (path == PlanPath::kPackets)
    return generator.name == kOneShot.name || generator.name == kOneRound.name ||
           generator.name == kTree.name;
  return !generator.peer_memory && generator.name != kMultiConnection.name;
}

// Why an option of a cached table cannot be run; empty: it can.
std::string why_unusable(const PlanOption& option, const TableRequest& request,
                         const ScheduleKinds& kinds) {
  const bool kernel = option.path == PlanPath::kPackets || option.path == PlanPath::kLoadStore;
  if (option.path != request.path && !(kernel && request.kernels && option.schedule == -1))
    return fmt::format("it does not run as {} here", name_of(option.path));
  if (option.schedule != -1) {
    const std::optional<CollectiveKind> kind = kinds(option);
    if (!kind) return fmt::format("there is no schedule {}", option.name);
    return *kind == option.kind ? "" : fmt::format("that schedule is of a {}", name(*kind));
  }
  const Generator* generator = find_generator(option.name);
  const bool pair = option.kind == CollectiveKind::kSendRecv;
  if (generator == nullptr || !generator->supports({option.kind, pair ? 2 : request.nranks, 0}))
    return "no generator makes it";
  return runs_on(*generator, option.path)
             ? ""
             : "it does not run as " + std::string(name_of(option.path));
}

}  // namespace

CachedTable::CachedTable(const Config& config, const TableRequest& request, uint64_t schedules)
    : request_(request) {
  if (!config.cache.empty()) path_ = config.cache + "/" + table_name(config, request, schedules);
}

bool CachedTable::exists() const {
  std::error_code ignored;
  return !path_.empty() && std::filesystem::exists(path_, ignored);
}

SelectionTable CachedTable::read(const ScheduleKinds& kinds) const {
  SelectionTable table = SelectionTable::decode(read_cached(path_));
  for (const PlanOption& option : table.options)
    if (const std::string why = why_unusable(option, request_, kinds); !why.empty())
      fail(ncclInternalError, "its option {} for {}: {}", option.name, name(option.kind), why);
  // The ranges in the file may name options of other collectives.
  table.find_ranges();
  table.origin = request_.origin + "; the table from the cache";
  return table;
}

SelectionTable CachedTable::get() const {
  const ScheduleKinds kinds = [this](const PlanOption& option) -> std::optional<CollectiveKind> {
    if (option.schedule < 0 || static_cast<size_t>(option.schedule) >= request_.schedules.size())
      return std::nullopt;
    const ImportedSchedule& schedule = *request_.schedules[static_cast<size_t>(option.schedule)];
    if (schedule.path != option.name) return std::nullopt;
    return schedule.collective.kind;
  };
  if (exists()) try {
      return read(kinds);
    } catch (const Error& error) {
      WEFT_WARN("{}: a cached table is not used: {}", path_, error.what());
    }
  SelectionTable table = build_table(request_);
  if (path_.empty()) return table;
  try {
    write_cached(path_, table.encode());
  } catch (const Error& error) {
    WEFT_INFO(kInit, "the table is not kept: {}", error.what());
  }
  return table;
}

}  // namespace weft
