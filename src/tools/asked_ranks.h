// Ranks that `weft explain` is asked about, and the plans that their communicator would agree on.
#pragma once

#include <memory>

#include "src/base/config.h"
#include "src/planner/plan_chooser.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct AskedRanks {
  Config config;    // as one communicator uses it
  Machine machine;  // of all hosts
  int ranks = 0, hosts = 1, cores = 1;
  bool on_gpus = false;
  bool own_gpus = false;   // every rank has one: rank r is the machine's GPU number r
  bool processes = false;  // not threads of one process
  bool elsewhere = false;  // the machine is another one than this

  // As decide_net_lanes() decides. (Whether NICs take GPU memory is only known where they are.)
  bool net_lanes() const {
    return config.net_lanes > 1 || (config.net_lanes == 1 && ranks > hosts);
  }
};

// Plans as rank 0 does.
std::unique_ptr<const PlanChooser> plans_of(const AskedRanks& asked);

}  // namespace weft
