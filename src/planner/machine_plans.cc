// plans_for_machine() and plans_for_topo() of init_plan_builders.h.
#include <algorithm>
#include <chrono>
#include <numeric>

#include "algorithms/catalogue/catalogue.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/parallel_for.h"
#include "src/planner/cached_table.h"
#include "src/planner/gpu_rates.h"
#include "src/planner/init_plan_builders.h"
#include "src/planner/ordered_plans.h"
#include "src/planner/plan_facts.h"
#include "src/planner/schedule_maker.h"
#include "src/planner/tuner_plugin.h"
#include "src/planner/via_host.h"
#include "src/simulator/lane_simulation.h"
#include "src/topology/graph/rank_machine.h"

namespace weft {
namespace {

// Kernels that load and store in peer memory, or send packets, know this many ranks.
constexpr int kMostKernelRanks = 32;

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
  const auto measured = measured_rates(request);
  const GpuRates rates = gpu_rates(machine, measured ? &*measured : nullptr);
  table.path = PlanPath::kLanes;
  table.lanes = usual_cut(request.hosts > 1);
  if (request.config.max_ctas > 0)
    table.lanes->blocks = std::min(table.lanes->blocks, request.config.max_ctas);
  if (request.config.lane_fifo_bytes > 0)
    table.lanes->fifo_bytes = static_cast<double>(request.config.lane_fifo_bytes);
  if (request.config.lane_slots > 0) table.lanes->slots = request.config.lane_slots;
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

// Options besides those that are simulated, and what a tuner plugin says.
void complete_table(const InitPlansRequest& request, const Machine& machine,
                    SelectionTable& table) {
  if (request.on_gpus) add_cpu_plans(request, machine, table);
  ask_tuner(request.config, request.nranks, request.hosts, request.communicator, table);
}

// The cached table of these schedules. An earlier init may have had no time for all of them: then
// its table serves until the cache has more, or this init has the time. nullopt: there is none.
std::optional<CachedTable> table_of(const InitPlansRequest& request, const KnownSchedules& known,
                                    const SynthesisTime& time, TableRequest& table) {
  for (const bool patient : {true, false}) {
    if (patient ? known.cut_short + known.left > 0 : time.seconds >= kPatientSeconds) continue;
    table.patient = patient;
    if (CachedTable cached(request.config, table, known.fingerprint); cached.exists())
      return cached;
  }
  return std::nullopt;
}

// Plans that were made before: a table and the schedules that it chooses are in the cache. Only
// these are proved. nullopt: something is missing, or no good.
std::optional<CommunicatorPlans> plans_made_before(const InitPlansRequest& request,
                                                   const Machine& machine, TableRequest& table,
                                                   const std::optional<LaneCosts>& costs,
                                                   const SynthesisTime& time,
                                                   const std::string& title) {
  const auto begin = std::chrono::steady_clock::now();
  const KnownSchedules known = known_schedules(request.config, machine, costs, time);
  const std::optional<CachedTable> cached = table_of(request, known, time, table);
  if (!cached) return std::nullopt;
  const auto known_as = [&](const PlanOption& option) {
    const auto found =
        std::find_if(known.all.begin(), known.all.end(),
                     [&](const KnownSchedule& one) { return one.title == option.name; });
    return found == known.all.end() ? nullptr : &*found;
  };
  // Rings that follow the machine stand behind the schedules of the cache.
  const size_t most = known.all.size() + (request.on_gpus ? kMostOrderedSchedules : 0);
  const auto kind_of = [&](const PlanOption& option) -> std::optional<CollectiveKind> {
    if (option.schedule < 0 || static_cast<size_t>(option.schedule) >= most) return std::nullopt;
    if (const KnownSchedule* one = known_as(option)) return one->collective.kind;
    return request.on_gpus ? ordered_kind(option.name, option.kind) : std::nullopt;
  };
  try {
    CommunicatorPlans plans;
    plans.table = cached->read(kind_of);
    complete_table(request, machine, plans.table);
    std::vector<std::shared_ptr<const ImportedSchedule>> ordered;
    std::vector<PlanOption*> chosen;
    for (size_t i = 0; i < plans.table.options.size(); i++) {
      PlanOption& option = plans.table.options[i];
      if (option.schedule < 0) continue;
      const bool kept = plans.table.chooses(static_cast<int>(i));
      if (kept && known_as(option) == nullptr && ordered.empty())
        ordered = ordered_schedules(machine, !request.config.algo.empty());
      option.schedule = kept ? static_cast<int>(chosen.size()) : PlanOption::kNotKept;
      if (kept) chosen.push_back(&option);
    }
    std::vector<std::shared_ptr<const ImportedSchedule>> proved(chosen.size());
    // The longest proofs begin first.
    std::vector<size_t> order(chosen.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto length = [&](size_t i) {
      const KnownSchedule* one = known_as(*chosen[i]);
      return one == nullptr ? 0 : one->text.size();
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return length(a) > length(b); });
    parallel_for(chosen.size(), [&] {
      return [&](size_t piece) {
        const size_t i = order[piece];
        if (const KnownSchedule* one = known_as(*chosen[i]))
          proved[i] = prove_known(*one, request.fits);
        for (const auto& ring : ordered)
          if (ring->path == chosen[i]->name && ring->collective.kind == chosen[i]->kind)
            proved[i] = ring;
        if (proved[i] == nullptr) fail(ncclInternalError, "there is no {}", chosen[i]->name);
      };
    });
    plans.schedules = ImportedSchedules::of(proved);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    plans.table.origin +=
        fmt::format("; {} schedules from the cache, 0 synthesized, {} proved, in {:.0f} ms",
                    known.all.size(), proved.size(), seconds * 1e3);
    MadeSchedules made;
    made.fetched = static_cast<int>(known.all.size());
    made.cut_short = known.cut_short;
    if (!table.patient) made.left = known.left + known.missing;
    made.completes = made.left + made.cut_short > 0 &&
                     complete_cache_later(request.config, machine, costs, time);
    log_unfinished(title, made);
    return plans;
  } catch (const Error& error) {
    WEFT_INFO(kInit, "{}: all cached plans are looked at: {}", title, error.what());
    return std::nullopt;
  }
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
  const std::string name = fmt::format("{} ({} of its {} GPUs)", title, request.nranks, available);
  const auto finish = [&](CommunicatorPlans& made) {
    made.nics = nic_plan(machine, made.schedules->all());
    made.table.machine = name;
    return std::move(made);
  };
  uint64_t schedules = 0;
  if (available == request.nranks && request.nranks > 1 && request.nranks <= kMostTableRanks) {
    std::optional<LaneCosts> costs;
    if (table.lanes) costs = {*table.lanes, table.simulation.step_us, table.simulation.message_us};
    const SynthesisTime time = time_for(request, machine);
    if (auto before = plans_made_before(request, machine, table, costs, time, title))
      return finish(*before);
    const MadeSchedules made = schedules_for(request.config, machine, costs, time, request.fits);
    std::vector<std::shared_ptr<const ImportedSchedule>> all = made.schedules->all();
    if (request.on_gpus)
      for (const auto& ordered : ordered_schedules(machine, !request.config.algo.empty()))
        all.push_back(ordered);
    plans.schedules = ImportedSchedules::of(all);
    schedules = made.fingerprint;
    table.patient = made.left + made.cut_short == 0;
    table.schedules = all;
    table.origin += fmt::format("; {} schedules from the cache, {} synthesized, in {:.0f} ms",
                                made.fetched, made.made, made.seconds * 1e3);
    log_unfinished(title, made);
  }
  plans.table = CachedTable(request.config, table, schedules).get();
  complete_table(request, machine, plans.table);
  keep_chosen(plans);
  return finish(plans);
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
