// plans_for_machine() and plans_for_topo() of init_plan_builders.h.
#include <algorithm>
#include <filesystem>

#include "algorithms/catalogue/catalogue.h"
#include "algorithms/generators/generators.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/siphash.h"
#include "src/planner/cached_file.h"
#include "src/planner/gpu_rates.h"
#include "src/planner/init_plan_builders.h"
#include "src/planner/ordered_plans.h"
#include "src/planner/plan_facts.h"
#include "src/planner/tuner_plugin.h"
#include "src/planner/via_host.h"
#include "src/simulator/lane_simulation.h"
#include "src/topology/graph/rank_machine.h"

namespace weft {
namespace {

// Kernels that load and store in peer memory, or send packets, know this many ranks.
constexpr int kMostKernelRanks = 32;

// A file name that differs if anything differs that a table of simulated times depends on.
std::string table_name(const TableRequest& request, uint64_t schedules) {
  std::string text = fmt::format("9 {} {} {} {} {} {}", request.nranks, request.rules.plan,
                                 request.rules.max_channels, request.simulation.most_slices,
                                 schedules, request.setting.no_cpu_nodes);
  text += fmt::format(" {} {} {} {} {}", static_cast<int>(request.path), request.call_us,
                      request.simulation.step_us, request.simulation.message_us, request.packets);
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
std::string why_unusable(const PlanOption& option, const TableRequest& request) {
  const bool kernel = option.path == PlanPath::kPackets || option.path == PlanPath::kLoadStore;
  if (option.path != request.path && !(kernel && request.kernels && option.schedule == -1))
    return fmt::format("it does not run as {} here", name_of(option.path));
  if (option.schedule != -1) {
    if (option.schedule < 0 || static_cast<size_t>(option.schedule) >= request.schedules.size())
      return fmt::format("there is no schedule {}", option.schedule);
    const ImportedSchedule& schedule = *request.schedules[static_cast<size_t>(option.schedule)];
    const bool same = schedule.collective.kind == option.kind && schedule.path == option.name;
    return same ? "" : fmt::format("schedule {} is {}", option.schedule, schedule.path);
  }
  const Generator* generator = find_generator(option.name);
  const bool pair = option.kind == CollectiveKind::kSendRecv;
  if (generator == nullptr || !generator->supports({option.kind, pair ? 2 : request.nranks, 0}))
    return "no generator makes it";
  return runs_on(*generator, option.path)
             ? ""
             : "it does not run as " + std::string(name_of(option.path));
}

// Executors do what a table says, so a damaged one must not reach them.
SelectionTable read_table(const std::string& path, const TableRequest& request) {
  SelectionTable table = SelectionTable::decode(read_cached(path));
  for (const PlanOption& option : table.options)
    if (const std::string why = why_unusable(option, request); !why.empty())
      fail(ncclInternalError, "its option {} for {}: {}", option.name, name(option.kind), why);
  // The ranges in the file may name options of other collectives.
  table.find_ranges();
  table.origin = request.origin + "; the table from the cache";
  return table;
}

// Takes the table from the cache, or builds it and puts it there. Simulating costs takes longer
// than reading them.
SelectionTable simulated_table(const Config& config, const TableRequest& request,
                               uint64_t schedules) {
  if (config.cache.empty()) return build_table(request);
  const std::string path = config.cache + "/" + table_name(request, schedules);
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) try {
      return read_table(path, request);
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

// Other ranks need only the schedules that some size chooses.
void keep_chosen(CommunicatorPlans& plans) {
  std::vector<std::shared_ptr<const ImportedSchedule>> chosen;
  for (size_t i = 0; i < plans.table.options.size(); i++) {
    PlanOption& option = plans.table.options[i];
    if (option.schedule < 0) continue;
    const auto& schedule = plans.schedules->all()[static_cast<size_t>(option.schedule)];
    const bool kept = plans.table.chooses(static_cast<int>(i));
    option.schedule = kept ? static_cast<int>(chosen.size()) : PlanOption::kNotKept;
    if (kept) chosen.push_back(schedule);
  }
  plans.schedules = ImportedSchedules::of(chosen);
}

// What steps cost on GPUs, and whether kernels for special shapes may compete.
void take_gpu_rates(const InitPlansRequest& request, const Machine& machine, TableRequest& table) {
  const auto measured = load_rates(request.config);
  const GpuRates rates = gpu_rates(machine, measured ? &*measured : nullptr);
  table.path = PlanPath::kLanes;
  table.lanes = usual_cut(request.hosts > 1);
  if (request.config.max_ctas > 0)
    table.lanes->blocks = std::min(table.lanes->blocks, request.config.max_ctas);
  table.lanes->fifo_bytes = static_cast<double>(request.config.lane_fifo_bytes);
  table.lanes->slots = request.config.lane_slots;
  if (request.config.scratch_bytes > 0) {
    table.lanes->pool_bytes = static_cast<double>(request.config.scratch_bytes);
    table.lanes->shared_pool = true;
  }
  table.call_us = rates.call_us;
  table.lane_start_us = rates.lane_start_us;
  if (request.nranks <= kMostKernelRanks && all_direct(machine))
    table.kernels = kernel_costs(table.simulation, rates, request.nranks);
  table.packets = request.config.packet_bytes > 0;
  table.simulation = quick_lanes(lane_costs(table.simulation, rates), request.nranks);
  table.origin += " with " + rates.origin;
}

// If every byte between GPUs crosses a CPU, CPU nodes can reduce it there.
void add_cpu_plans(const InitPlansRequest& request, const Machine& machine, SelectionTable& table) {
  const std::vector<int> all = gpus(machine);
  if (request.hosts > 1 || !request.setting.no_cpu_nodes.empty() ||
      all.size() != static_cast<size_t>(request.nranks) || !only_over_host_bridge(machine, all))
    return;
  for (const PlanOption& option : cpu_node_options(request, machine, all))
    table.options.push_back(option);
  table.find_ranges();
}

// A job waits so long at most. The table of plans takes some time, too.
constexpr double kMostSynthesisSeconds = 0.4;

SynthesisTime time_for(const InitPlansRequest& request, const Machine& machine) {
  SynthesisTime time;
  time.seconds = synthesis_seconds(request.config, machine);
  time.background = request.in_job;
  if (request.in_job && request.config.synthesis_seconds < 0)
    time.most_seconds = kMostSynthesisSeconds;
  return time;
}

void log_unfinished(const std::string& title, const MadeSchedules& made) {
  if (made.cut_short + made.left == 0) return;
  WEFT_INFO(kInit, "{}: {} of {} schedules are the first that were found{}; {}", title,
            made.cut_short, made.fetched + made.made,
            made.left == 0 ? ""
                           : fmt::format(", for {} more there was no time and generators "
                                         "serve instead",
                                         made.left),
            made.completes ? "a thread looks for better ones, for later communicators"
                           : "WEFT_SYNTHESIS_SECONDS=60 looks for better ones once, and the cache "
                             "keeps them");
}

}  // namespace

CommunicatorPlans plans_for_machine(const InitPlansRequest& request, const Machine& given,
                                    const std::string& title) {
  const Machine machine = request.on_gpus ? peer_ways(given) : given;
  CommunicatorPlans plans;
  TableRequest table = table_request(request);
  table.machine = &machine;
  table.simulation = quick_simulation(request.nranks);
  table.origin = "times are simulated";
  if (request.on_gpus) take_gpu_rates(request, machine, table);
  const auto available = static_cast<int>(gpus(machine).size());
  if (available == request.nranks && request.nranks > 1 && request.nranks <= kMostTableRanks) {
    std::optional<LaneCosts> costs;
    if (table.lanes) costs = {*table.lanes, table.simulation.step_us, table.simulation.message_us};
    const MadeSchedules made =
        schedules_for(request.config, machine, costs, time_for(request, machine), request.fits);
    std::vector<std::shared_ptr<const ImportedSchedule>> all = made.schedules->all();
    if (request.on_gpus)
      for (const auto& ordered : ordered_schedules(machine)) all.push_back(ordered);
    plans.schedules = ImportedSchedules::of(all);
    table.schedules = all;
    table.origin += fmt::format("; {} schedules from the cache, {} synthesized, in {:.0f} ms",
                                made.fetched, made.made, made.seconds * 1e3);
    log_unfinished(title, made);
  }
  plans.table = simulated_table(request.config, table, plans.schedules->fingerprint());
  if (request.on_gpus) add_cpu_plans(request, machine, plans.table);
  ask_tuner(request.config, request.nranks, request.hosts, request.communicator, plans.table);
  keep_chosen(plans);
  plans.nics = nic_plan(machine, plans.schedules->all());
  plans.table.machine = fmt::format("{} ({} of its {} GPUs)", title, request.nranks, available);
  return plans;
}

CommunicatorPlans plans_for_topo(const InitPlansRequest& request) {
  const Machine emulated = load_machine(request.config.topo);
  const auto available = static_cast<int>(gpus(emulated).size());
  if (available < request.nranks)
    fail(ncclInvalidUsage, "WEFT_TOPO: {} has {} GPUs, the communicator has {} ranks",
         request.config.topo, available, request.nranks);
  return plans_for_machine(request, emulated, request.config.topo);
}

}  // namespace weft
