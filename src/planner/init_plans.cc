// See init_plans.h.
#include "src/planner/init_plans.h"

#include "src/base/error.h"
#include "src/planner/init_plan_builders.h"
#include "src/planner/rates_file.h"
#include "src/planner/tuner_plugin.h"
#include "src/planner/via_host.h"
#include "src/topology/graph/rank_machine.h"

namespace weft {

SimulationOptions quick_simulation(int nranks) {
  SimulationOptions options;
  const bool many = nranks > 32;
  options.slice_bytes = many ? 1 << 20 : 256 << 10;
  options.most_slices = many ? 4 : 8;
  return options;
}

void take_rates(const InitPlansRequest& request, TableRequest& table) {
  const std::string usual = request.on_gpus                  ? kGpuRates
                            : !request.setting.hosts.empty() ? kNetworkRates
                            : request.setting.one_process    ? kThreadRates
                                                             : kProcessRates;
  table.rates = default_rates(usual);
  table.origin = "default rates (weft calibrate measures them)";
  const auto measured = load_rates(request.config);
  if (!measured.has_value()) return;
  // Threads of one process launch kernels one at a time, so their calls take longer.
  const bool apart =
      request.on_gpus && !request.setting.one_process && measured->rates.contains(kGpuProcessRates);
  const std::string section = apart ? kGpuProcessRates : usual;
  const auto it = measured->rates.find(section);
  if (it == measured->rates.end()) return;
  table.rates = it->second;
  if (const auto factors = measured->factors.find(section); factors != measured->factors.end())
    table.factors = factors->second;
  table.origin = fmt::format("rates {}", measured->measured);
}

TableRequest table_request(const InitPlansRequest& request) {
  TableRequest table;
  table.nranks = request.nranks;
  table.rules = TuningRules::from(request.config);
  table.setting = request.setting;
  return table;
}

CommunicatorPlans plans_for_cores(const InitPlansRequest& request) {
  CommunicatorPlans plans;
  TableRequest table = table_request(request);
  take_rates(request, table);
  plans.table = build_table(table);
  ask_tuner(request.config, request.nranks, request.hosts, request.communicator, plans.table);
  plans.table.machine = fmt::format("{} ranks on {} core{} of {} host{}", request.nranks,
                                    request.setting.cores, request.setting.cores == 1 ? "" : "s",
                                    request.hosts, request.hosts == 1 ? "" : "s");
  return plans;
}

CommunicatorPlans make_init_plans(const InitPlansRequest& request) {
  if (!request.config.topo.empty()) return plans_for_topo(request);
  if (!request.on_gpus) return plans_for_cores(request);
  const std::vector<int> places =
      gpus_of_ranks(request.machine, {request.gpus, request.setting.hosts}, request.nranks);
  const bool via_host = request.hosts == 1 && !no_peer_access(request.machine, places).empty();
  if (each_has_a_gpu(places) && request.via_host.empty() && !via_host && request.nranks > 1 &&
      (request.hosts == 1 || request.net_lanes)) {
    const Machine machine = reduce_to(request.machine, places);
    return plans_for_machine(request, machine,
                             machine.name.empty() ? "this machine" : machine.name);
  }
  if (request.hosts == 1) return plans_for_gpus(request, places);
  CommunicatorPlans plans = plans_for_cores(request);
  if (each_has_a_gpu(places))
    plans.nics = nic_plan(peer_ways(reduce_to(request.machine, places)), {});
  return plans;
}

}  // namespace weft
