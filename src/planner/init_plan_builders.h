// Parts of make_init_plans(): one builder per kind of machine.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/planner/init_plans.h"
#include "src/planner/rates_file.h"
#include "src/planner/table_builder.h"

namespace weft {

// Every rank has a GPU of its own: rank r is the machine's GPU number r. Schedules are synthesized
// for the machine, and all plans are compared by simulated time on it. `title` names the machine.
CommunicatorPlans plans_for_machine(const InitPlansRequest& request, const Machine& machine,
                                    const std::string& title);
// The same for the machine that WEFT_TOPO names, in host mode too.
CommunicatorPlans plans_for_topo(const InitPlansRequest& request);
// GPUs of one host that ranks share, or whose data goes through host memory. `places` has the node
// of every rank's GPU; it is empty if they are not known.
CommunicatorPlans plans_for_gpus(const InitPlansRequest& request, std::span<const int> places);
// Host mode on one or several hosts, and GPUs of several hosts that ranks share.
CommunicatorPlans plans_for_cores(const InitPlansRequest& request);

// Plans in which CPU nodes reduce, for GPUs of one host. Their data goes through host memory.
std::vector<PlanOption> cpu_node_options(const InitPlansRequest& request, const Machine& machine,
                                         std::span<const int> places);
// The request for a table, without rates. All builders use it.
TableRequest table_request(const InitPlansRequest& request);
// What weft calibrate measured, if it counts for the request.
std::optional<Calibration> measured_rates(const InitPlansRequest& request);
// Sets the rates that weft calibrate measured here, or the default rates.
void take_rates(const InitPlansRequest& request, TableRequest& table);
// The simulator cuts data more coarsely than executors do. That hardly changes times.
SimulationOptions quick_simulation(int nranks);

}  // namespace weft
