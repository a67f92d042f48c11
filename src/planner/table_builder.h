// Builds selection tables. The cost model predicts the time of every generator and synthesized
// schedule. If a machine is given, the simulator does. Pure functions; slow, for init and tools.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/planner/cost_model.h"
#include "src/planner/imported_schedules.h"
#include "src/planner/selection_table.h"
#include "src/planner/tuning_rules.h"
#include "src/simulator/cpu_nodes.h"
#include "src/simulator/lane_cut.h"
#include "src/simulator/simulator.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct TableRequest {
  int nranks = 1;
  // Rank r is the machine's GPU number r. nullptr: the cost model predicts, from `setting` and
  // `rates`.
  const Machine* machine = nullptr;
  HostSetting setting;
  Rates rates;
  PlanFactors factors;
  SimulationOptions simulation;
  CpuRates cpus;
  double call_us = 0;                // per call, added to simulated times
  double lane_start_us = 0;          // likewise, for lanes
  PlanPath path = PlanPath::kFifos;  // of plans whose ranks send messages
  std::optional<LaneCut> lanes;      // GPUs run these plans as lanes
  bool patient = false;              // lanes are simulated at more sizes
  // GPUs that all reach each other: the costs of kernels for special shapes, which compete then.
  std::optional<SimulationOptions> kernels;
  bool packets = true;  // one of them may send packets
  // If not 0: the time of a single round of messages up to kMostOneRoundBytes, and the time per
  // megabyte that a rank sends in it.
  double one_round_us = 0, one_round_us_mb = 0;
  // Why a schedule cannot run here; empty: it can. Not set: every schedule can.
  std::function<std::string(const Schedule&)> unfit;
  std::string origin;  // of the rates, in words
  TuningRules rules;
  std::vector<std::shared_ptr<const ImportedSchedule>> schedules;  // synthesized for this machine
  bool cpu_plans_only = false;
  bool measured = false;  // `factors` are of ranks like these
};

// Beyond this many ranks, making a schedule of every generator takes too long. Tables are empty
// then, and the rules of selection.h decide.
inline constexpr int kMostTableRanks = 128;

// For ranks that share GPUs and reach each other's memory. Options are the choices of
// choose_for_gpu(), whose thresholds are measured on such ranks. The cost model predicts their
// times. Where ranks like these have been measured on this machine, and share one GPU, it chooses
// between packets and loads; `setting.cores` is the number of GPUs.
SelectionTable build_gpu_table(const TableRequest& request, size_t packet_bytes);

SelectionTable build_table(const TableRequest& request);

}  // namespace weft
