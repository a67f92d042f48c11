// Plans one communicator, on its rank 0: reduces the machine to the ranks' GPUs, synthesizes
// schedules or takes them from the cache, and builds the selection table.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "src/base/config.h"
#include "src/planner/cost_model.h"
#include "src/planner/imported_schedules.h"
#include "src/planner/nic_plan.h"
#include "src/planner/schedule_cache.h"
#include "src/planner/selection_table.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct InitPlansRequest {
  const Config& config;
  int nranks = 1;
  bool on_gpus = false;
  HostSetting setting;
  const Machine& machine;  // all hosts joined, as discovered
  int hosts = 1;
  ScheduleTest fits;          // whether a synthesized schedule can be run
  uint64_t communicator = 0;  // a number for tuner plugins
  // For GPUs.
  std::vector<std::string> gpus;  // PCI bus id per rank; empty: ranks go to the GPUs in turn
  std::string via_host;           // why data must go through host memory; empty: it need not
  std::function<std::string(const Schedule&)> unfit_for_host_fifos;  // why no kernel can run it
  bool net_lanes = true;  // GPUs of several hosts run lanes
  // For a job, not for a tool: synthesis ends at a fixed time, and goes on in the background.
  bool in_job = false;
  bool elsewhere = false;  // the machine is not this one: rates measured here do not count
};

// The plans that all ranks of a communicator agree on. Immutable once made.
struct CommunicatorPlans {
  SelectionTable table;
  // PlanOption::schedule is an index into these.
  std::shared_ptr<const ImportedSchedules> schedules = std::make_shared<const ImportedSchedules>();

  NicPlan nics;

  // The plans as text for the other ranks. decode() proves the schedules again, once per process.
  std::string encode() const;
  static CommunicatorPlans decode(std::string_view text);
};

// Throws Error if WEFT_TOPO cannot be read or has too few GPUs, or if NCCL_ALGO, NCCL_PROTO or
// WEFT_PLAN have unknown words.
CommunicatorPlans make_init_plans(const InitPlansRequest& request);

// For which ranks simple rules decide instead of this table; empty: the table decides.
std::string why_rules_decide(const SelectionTable& table, int nranks, int hosts);

}  // namespace weft
