// Builds selection tables: asks the cost model, or the simulator where links decide, what every
// generator and every synthesized schedule would take. Pure functions; slow, for set-up and tools.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/planner/cost_model.h"
#include "src/planner/cpu_help.h"
#include "src/planner/imported_schedules.h"
#include "src/planner/selection_table.h"
#include "src/planner/simulator.h"
#include "src/planner/tuning_rules.h"
#include "src/topology/machine.h"

namespace weft {

struct TableRequest {
  int nranks = 1;
  // The machine whose GPUs the ranks are, in order; nullptr: ranks are driven by cores, and
  // `setting` and `rates` tell.
  const Machine* machine = nullptr;
  HostSetting setting;
  Rates rates;
  PlanFactors factors;
  SimulationOptions simulation;
  CpuRates cpus;
  double call_us = 0;  // that simulations do not know of
  // If not 0: what a single exchange takes as long as its messages are small (kMostExchangedBytes),
  // and for every megabyte that a rank sends.
  double exchange_us = 0, exchange_us_mb = 0;
  // Why a schedule cannot be run here; empty: it can. Not set: all can.
  std::function<std::string(const Schedule&)> unfit;
  std::string origin;  // of the rates, in words
  TuningRules rules;
  std::vector<std::shared_ptr<const ImportedSchedule>> schedules;  // synthesized for this machine
  bool cpu_plans_only = false;
};

// Beyond this many ranks a schedule of every generator takes too long to make: tables are empty,
// and the rules of selection.h decide.
inline constexpr int kMostTableRanks = 128;

// For GPUs that reach each other's memory, which choose_for_gpu() decides for: its choices with
// their costs by the cost model, `setting.cores` being the number of GPUs, and no less than what a
// machine's links take where there is one. `helpers`, plans with CPU nodes, are chosen where they
// would be faster by far: they have not been measured.
SelectionTable build_gpu_table(const TableRequest& request, size_t packet_bytes,
                               const std::vector<PlanOption>& helpers = {});

SelectionTable build_table(const TableRequest& request);

}  // namespace weft
