// Inside make_init_plans(): one builder per situation.
#pragma once

#include "src/planner/init_plans.h"
#include "src/planner/table_builder.h"

namespace weft {

// WEFT_TOPO names the machine: times are simulated on it, and schedules synthesized for it.
CommunicatorPlans plans_for_topo(const InitPlansRequest& request);
// GPUs of one host, with peer access or through host memory.
CommunicatorPlans plans_for_gpus(const InitPlansRequest& request);
// Ranks driven by cores, on one or several hosts; also GPUs of several hosts.
CommunicatorPlans plans_for_cores(const InitPlansRequest& request);

// What they share: the request for a table, without rates.
TableRequest table_request(const InitPlansRequest& request);
// Rates measured here where there are such, or default ones.
void take_rates(const InitPlansRequest& request, TableRequest& table);
// How the simulator cuts data: coarser than executors do, which hardly changes times.
SimulationOptions quick_simulation(int nranks);

}  // namespace weft
