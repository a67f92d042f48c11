// plans_for_topo() of init_plan_builders.h.
#include <filesystem>

#include "algorithms/catalogue/catalogue.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/siphash.h"
#include "src/planner/cached_file.h"
#include "src/planner/init_plan_builders.h"
#include "src/planner/tuner_plugin.h"

namespace weft {
namespace {

// A file name that differs if anything differs that a table of simulated times depends on.
std::string table_name(const TableRequest& request, uint64_t schedules) {
  std::string text = fmt::format("3 {} {} {} {} {} {}", request.nranks, request.rules.plan,
                                 request.rules.max_channels, request.simulation.most_slices,
                                 schedules, request.setting.no_cpu_nodes);
  for (const NcclChoice* choice : {&request.rules.algorithms, &request.rules.protocols})
    for (const unsigned allowed : choice->allowed) text += fmt::format(" {}", allowed);
  return fmt::format("table-{}-{:016x}", plan_key(*request.machine),
                     siphash(Secret{}, text.data(), text.size()));
}

// Takes the table from the cache, or builds it and puts it there. Simulating costs takes longer
// than reading them.
SelectionTable simulated_table(const Config& config, const TableRequest& request,
                               uint64_t schedules) {
  if (config.cache.empty()) return build_table(request);
  const std::string path = config.cache + "/" + table_name(request, schedules);
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) try {
      SelectionTable table = SelectionTable::decode(read_cached(path));
      table.origin = request.origin + "; the table from the cache";
      return table;
    } catch (const Error& error) {
      WEFT_WARN("{}: a cached table is not used: {}", path, error.what());
    }
  SelectionTable table = build_table(request);
  try {
    write_cached(path, table.encode());
  } catch (const Error& error) {
    WEFT_INFO(kInit, "the table is not kept: {}", error.what());
  }
  return table;
}

void log_unfinished(const InitPlansRequest& request, const MadeSchedules& made) {
  if (made.cut_short + made.left == 0) return;
  WEFT_INFO(kInit,
            "{}: {} of {} schedules are the first that were found{}; "
            "WEFT_SYNTHESIS_SECONDS=60 looks for better ones once, and the cache keeps them",
            request.config.topo, made.cut_short, made.fetched + made.made,
            made.left == 0 ? ""
                           : fmt::format(", for {} more there was no time and generators "
                                         "serve instead",
                                         made.left));
}

}  // namespace

CommunicatorPlans plans_for_topo(const InitPlansRequest& request) {
  CommunicatorPlans plans;
  TableRequest table = table_request(request);
  const Machine emulated = load_machine(request.config.topo);
  const auto available = static_cast<int>(gpus(emulated).size());
  if (available < request.nranks)
    fail(ncclInvalidUsage, "WEFT_TOPO: {} has {} GPUs, the communicator has {} ranks",
         request.config.topo, available, request.nranks);
  table.machine = &emulated;
  table.simulation = quick_simulation(request.nranks);
  table.origin = "times are simulated";
  if (available == request.nranks && request.nranks > 1 && request.nranks <= kMostTableRanks) {
    const MadeSchedules made = schedules_for(
        request.config, emulated, synthesis_seconds(request.config, emulated), request.fits);
    plans.schedules = made.schedules;
    table.schedules = made.schedules->all();
    table.origin += fmt::format("; {} schedules from the cache, {} synthesized, in {:.0f} ms",
                                made.fetched, made.made, made.seconds * 1e3);
    log_unfinished(request, made);
  }
  plans.table = simulated_table(request.config, table, plans.schedules->fingerprint());
  ask_tuner(request.config, request.nranks, request.hosts, request.communicator, plans.table);
  plans.table.machine = fmt::format("{} ({} of its {} GPUs)", request.config.topo, request.nranks,
                                    gpus(emulated).size());
  return plans;
}

}  // namespace weft
