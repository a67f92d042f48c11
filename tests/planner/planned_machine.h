// Plans for a machine as rank 0 of a communicator with one rank per GPU does.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>

#include "src/exec/cuda/host_fifo_fit.h"
#include "src/planner/plan_chooser.h"
#include "src/planner/plan_facts.h"
#include "src/tools/explain_gpus.h"

namespace weft::test {

class PlannedMachine {
 public:
  PlannedMachine(Machine machine, const std::string& synthesis_seconds)
      : machine_(std::move(machine)) {
    config_.cache.clear();
    config_.synthesis_seconds = std::stod(synthesis_seconds);
    const int hosts = std::max(1, count_hosts(machine_));
    HostSetting setting;
    setting.cores = 64;
    for (const int gpu : gpus(machine_))
      if (hosts > 1) setting.hosts.push_back(machine_.nodes[static_cast<size_t>(gpu)].host);
    if (hosts > 1) setting.no_cpu_nodes = "ranks are on several hosts";
    CommunicatorPlans plans = make_init_plans({config_,
                                               ranks(),
                                               true,
                                               setting,
                                               machine_,
                                               hosts,
                                               [](const ImportedSchedule&) { return true; },
                                               0,
                                               {},
                                               "",
                                               unfit_for_host_fifos});
    Placement placement;
    placement.one_host = hosts == 1;
    placement.lanes = plans.table.via_host.empty();
    placement.peer_memory = placement.lanes && hosts == 1 && ranks() <= 32 && all_direct(machine_);
    placement.via_host = !placement.lanes;
    placement.hosts = hosts_of_hierarchy(setting.hosts);
    chooser_.place(placement);
    chooser_.agree(std::move(plans));
    chooser_.set_cpu_nodes(chooser_.most_cpu_nodes(true));
  }

  int ranks() const { return static_cast<int>(gpus(machine_).size()); }
  const Machine& machine() const { return machine_; }
  const PlanChooser& chooser() const { return chooser_; }
  GpuExplanation explained() const { return {chooser_, machine_, 32}; }

 private:
  Machine machine_;
  Config config_;
  PlanChooser chooser_{config_, 0, "test", std::make_shared<const ImportedSchedules>()};
};

}  // namespace weft::test
