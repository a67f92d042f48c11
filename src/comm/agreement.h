// How the ranks of a communicator come to one set of plans, at init: every host describes itself,
// rank 0 plans for all of them, and every rank uses what rank 0 decided.
#pragma once

#include <string>
#include <vector>

#include "src/comm/control_channel.h"
#include "src/comm/peer_info.h"
#include "src/planner/init_plans.h"

namespace weft {

// The rank that takes part.
struct Agreement {
  int rank = 0;
  const std::string& label;
  const Secret& secret;
  const Config& config;
  ControlChannel& control;
};

// Collective. What rank 0 cannot decide fails on all ranks with one text.
CommunicatorPlans agree_on_plans(const Agreement& rank, const std::vector<PeerInfo>& infos,
                                 Deadline deadline);

}  // namespace weft
