// Parts of make_init_plans(): one builder per kind of machine.
#pragma once

#include "src/planner/init_plans.h"
#include "src/planner/table_builder.h"

namespace weft {

// WEFT_TOPO names the machine. Schedules are synthesized for it, and times are simulated on it.
CommunicatorPlans plans_for_topo(const InitPlansRequest& request);
// GPUs of one host, with peer access or through host memory.
CommunicatorPlans plans_for_gpus(const InitPlansRequest& request);
// Host mode on one or several hosts, and GPUs of several hosts.
CommunicatorPlans plans_for_cores(const InitPlansRequest& request);

// The request for a table, without rates. All builders use it.
TableRequest table_request(const InitPlansRequest& request);
// Sets the rates that weft calibrate measured here, or the default rates.
void take_rates(const InitPlansRequest& request, TableRequest& table);
// The simulator cuts data more coarsely than executors do. That hardly changes times.
SimulationOptions quick_simulation(int nranks);

}  // namespace weft
