// plans_for_gpus() of init_plan_builders.h.
#include <algorithm>
#include <set>
#include <span>

#include "src/base/log.h"
#include "src/planner/init_plan_builders.h"
#include "src/planner/rates_file.h"
#include "src/planner/tuner_plugin.h"
#include "src/planner/via_host.h"

namespace weft {
namespace {

// The most lanes of one GPU. Each lane is a thread block that may need an SM of its own. Lanes wait
// for each other, so all must be resident at once.
constexpr ptrdiff_t kResidentLanes = 64;

ptrdiff_t most_ranks_of_a_gpu(std::span<const int> gpus) {
  ptrdiff_t most = 0;
  for (const int gpu : gpus) most = std::max(most, std::count(gpus.begin(), gpus.end(), gpu));
  return most;
}

// For GPUs whose data goes through host memory, with or without CPU nodes.
SelectionTable via_host_table(const InitPlansRequest& request, const Machine& whole,
                              std::span<const int> places, TableRequest table) {
  const auto measured = measured_rates(request);
  const auto rates = [&](const char* section) {
    const bool known = measured.has_value() && measured->rates.contains(section);
    return known ? measured->rates.at(section) : default_rates(section);
  };
  const Rates fifos = rates(kHostFifoRates), cpus = rates(kThreadRates);
  const Machine machine = machine_of_ranks(whole, places, true);
  table.machine = &machine;
  table.simulation = via_host_simulation(fifos, cpus, request.setting.slice_bytes, request.nranks);
  table.cpus = cpu_rates(cpus, request.setting.cores);
  table.call_us = fifos.call_us;
  table.one_round_us = kOneRoundUs;
  table.one_round_us_mb = kOneRoundUsMb;
  table.unfit = [&](const Schedule& schedule) {
    std::string why = request.unfit_for_host_fifos ? request.unfit_for_host_fifos(schedule) : "";
    const auto lanes = static_cast<ptrdiff_t>(schedule.ranks[0].lanes.size());
    if (why.empty() && lanes * most_ranks_of_a_gpu(places) > kResidentLanes)
      why = "the lanes of ranks that share a GPU might not run side by side";
    return why;
  };
  table.factors = {};
  table.origin = fmt::format("times are simulated, CPUs reduce by {}",
                             measured.has_value() && measured->rates.contains(kThreadRates)
                                 ? "rates " + measured->measured
                                 : "default rates (weft calibrate measures them)");
  SelectionTable built = build_table(table);
  if (!table.cpu_plans_only)
    ask_tuner(request.config, request.nranks, request.hosts, request.communicator, built);
  const std::set<int> used(places.begin(), places.end());
  built.machine = fmt::format("{} ranks on {} GPU{}, through host memory", request.nranks,
                              used.size(), used.size() == 1 ? "" : "s");
  return built;
}

// For ranks that share GPUs with peer access. Rules choose plans; the table lists the choices and
// their costs.
SelectionTable shared_gpus_table(const InitPlansRequest& request, std::span<const int> places,
                                 TableRequest table) {
  // GPUs work in parallel. Ranks that share a GPU share its time.
  const std::set<int> used(places.begin(), places.end());
  const size_t found = used.empty() ? gpus(request.machine).size() : used.size();
  table.setting.cores = std::clamp(static_cast<int>(found), 1, request.nranks);
  table.setting.on_gpus = true;
  SelectionTable built = build_gpu_table(table, request.config.packet_bytes);
  built.machine =
      fmt::format("{} ranks on {} GPU{}, {}", request.nranks, table.setting.cores,
                  table.setting.cores == 1 ? "" : "s",
                  built.measured ? "which has been calibrated" : "whose thresholds are measured");
  return built;
}

}  // namespace

std::vector<PlanOption> cpu_node_options(const InitPlansRequest& request, const Machine& machine,
                                         std::span<const int> places) {
  TableRequest table = table_request(request);
  table.cpu_plans_only = true;
  return via_host_table(request, machine, places, table).options;
}

CommunicatorPlans plans_for_gpus(const InitPlansRequest& request, std::span<const int> places) {
  CommunicatorPlans plans;
  TableRequest table = table_request(request);
  take_rates(request, table);
  std::string via_host = request.via_host;
  if (via_host.empty()) via_host = no_peer_access(request.machine, places);
  if (!via_host.empty() && !places.empty()) {
    plans.table = via_host_table(request, request.machine, places, table);
    plans.table.via_host = via_host;
    return plans;
  }
  if (places.empty())
    WEFT_INFO(kInit, "{}not all GPUs of these ranks are seen here: simple rules decide",
              via_host.empty() ? "" : via_host + ", but ");
  plans.table = shared_gpus_table(request, places, table);
  return plans;
}

}  // namespace weft
