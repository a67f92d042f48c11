// At init the ranks of a communicator agree on one set of plans. Every host describes itself, rank
// 0 plans for all hosts, and every rank uses the result.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/comm/control_channel.h"
#include "src/comm/network_routes.h"
#include "src/comm/peer_info.h"
#include "src/planner/init_plans.h"
#include "src/transport/network.h"

namespace weft {

// The rank that calls agree_on_plans().
struct AgreeingRank {
  int rank = 0, device = 0;
  const std::string& label;
  const Secret& secret;
  const Config& config;
  ControlChannel& control;
  std::function<std::vector<NetProperties>()> devices;  // of its network; asked if they decide
};

// Collective. If planning fails on rank 0, all ranks throw Error with the same text.
CommunicatorPlans agree_on_plans(const AgreeingRank& rank, const std::vector<PeerInfo>& infos,
                                 Deadline deadline);

// What GPUs of several hosts run as lanes. `schedules`: they have some of their own, imported or
// for WEFT_TOPO. `compresses`: some calls travel compressed. `nics_reach_gpus` is asked where it
// decides. All ranks decide alike.
NetLanes decide_net_lanes(const Config& config, const std::vector<PeerInfo>& infos, bool schedules,
                          bool compresses, const std::function<bool()>& nics_reach_gpus = {});

}  // namespace weft
