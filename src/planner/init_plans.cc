// See init_plans.h.
#include "src/planner/init_plans.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/planner/init_plan_builders.h"
#include "src/planner/rates_file.h"
#include "src/planner/tuner_plugin.h"
#include "src/planner/tuning_rules.h"
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

std::optional<Calibration> measured_rates(const InitPlansRequest& request) {
  return request.elsewhere ? std::nullopt : load_rates(request.config);
}

void take_rates(const InitPlansRequest& request, TableRequest& table) {
  const std::string usual = request.on_gpus                  ? kGpuRates
                            : !request.setting.hosts.empty() ? kNetworkRates
                            : request.setting.one_process    ? kThreadRates
                                                             : kProcessRates;
  table.rates = default_rates(usual);
  table.origin = "default rates (weft calibrate measures them)";
  const auto measured = measured_rates(request);
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
  table.measured = request.on_gpus && (apart || request.setting.one_process);
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
  // Between GPUs of several hosts it only predicts.
  plans.table.advisory = request.on_gpus;
  if (!request.on_gpus)
    ask_tuner(request.config, request.nranks, request.hosts, request.communicator, plans.table);
  plans.table.machine = fmt::format("{} ranks on {} core{} of {} host{}", request.nranks,
                                    request.setting.cores, request.setting.cores == 1 ? "" : "s",
                                    request.hosts, request.hosts == 1 ? "" : "s");
  return plans;
}

namespace {

CommunicatorPlans plans_for(const InitPlansRequest& request) {
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

bool bars_simple(const TuningRules& rules) {
  for (int kind = 0; kind < kCollectiveKinds; kind++)
    if (!rules.protocols.allows(static_cast<CollectiveKind>(kind),
                                static_cast<int>(NcclProtocol::kSimple)))
      return true;
  return false;
}

}  // namespace

std::string why_rules_decide(const SelectionTable& table, int nranks, int hosts) {
  if (nranks > kMostTableRanks) return fmt::format("with more than {} ranks", kMostTableRanks);
  if (!table.advisory) return "";
  return hosts == 1 ? "between ranks that share a GPU" : "between these GPUs of several hosts";
}

CommunicatorPlans make_init_plans(const InitPlansRequest& request) {
  CommunicatorPlans plans = plans_for(request);
  if (request.on_gpus && bars_simple(TuningRules::from(request.config)))
    WEFT_WARN(
        "NCCL_PROTO without Simple has no effect on GPUs: WEFT_PACKET_BYTES sets up to which "
        "size packets are used");
  const std::string why = why_rules_decide(plans.table, request.nranks, request.hosts);
  if (why.empty()) return plans;
  const std::string tuner = request.config.tuner_plugin.value_or("none");
  for (const auto& [name, set] : {std::pair{"NCCL_ALGO", !request.config.algo.empty()},
                                  {"NCCL_TUNER_PLUGIN", tuner != "none"}})
    if (set) WEFT_WARN("{} has no effect {}: WEFT_PLAN forces a plan", name, why);
  return plans;
}

}  // namespace weft
