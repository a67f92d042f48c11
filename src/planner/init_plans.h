// Planning of one communicator, on its rank 0: which machine it is for, which schedules are
// synthesized or fetched from the cache, and the selection table over all of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "src/base/config.h"
#include "src/planner/cost_model.h"
#include "src/planner/imported_schedules.h"
#include "src/planner/schedule_cache.h"
#include "src/planner/selection_table.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct InitPlansRequest {
  const Config& config;
  int nranks = 1;
  bool on_gpus = false;
  HostSetting setting;
  const Machine& machine;  // the cluster, as found
  int hosts = 1;
  ScheduleTest fits;          // whether a synthesized schedule can be run
  uint64_t communicator = 0;  // a number for tuner plugins
  // Of GPUs on one host: PCI bus ids of the ranks' (none: they are dealt out in turn), why data
  // must go through host memory (empty: it need not), and why a kernel cannot run a schedule there.
  std::vector<std::string> gpus;
  std::string via_host;
  std::function<std::string(const Schedule&)> unfit_for_host_fifos;
};

// What all ranks of a communicator use. Immutable once made.
struct CommunicatorPlans {
  SelectionTable table;
  // Numbered as the table's options name them.
  std::shared_ptr<const ImportedSchedules> schedules = std::make_shared<const ImportedSchedules>();

  // For the other ranks. decode() proves the schedules anew; ranks of one process share that.
  std::string encode() const;
  static CommunicatorPlans decode(std::string_view text);
};

// Throws Error where settings cannot be followed: WEFT_TOPO that cannot be read or is too small,
// bad words in NCCL_ALGO, NCCL_PROTO or WEFT_PLAN.
CommunicatorPlans make_init_plans(const InitPlansRequest& request);

}  // namespace weft
