// Which NIC carries what between ranks of different hosts, by the names that the host gives them.
// Rank 0 makes it from the machine and the chosen schedules; all ranks obey it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/planner/imported_schedules.h"
#include "src/topology/graph/machine.h"
#include "src/topology/graph/paths.h"

namespace weft {

struct NicPlan {
  // The first FIFO between two ranks, and FIFOs whose schedules name other NICs than the first ones
  // of their ranks.
  struct Route {
    int from = 0, to = 0, channel = 0;  // channel -1: every one that has no route of its own
    std::string sends, receives;
    bool operator==(const Route&) const = default;
    // Whether this is the route of `rank` to or from `peer`. Channel -1: of any channel.
    bool serves(int rank, int peer, int on, bool is_sender) const {
      return (is_sender ? from : to) == rank && (is_sender ? to : from) == peer &&
             (on < 0 || channel < 0 || on == channel);
    }
  };
  // The NICs of each rank, the first one first. Empty: the machine has no NICs, or is not known.
  std::vector<std::vector<std::string>> of_rank;
  std::vector<PathClass> distance;  // from a rank's GPU to these NICs
  std::vector<Route> routes;
  // Ranks that are alone on their hosts: all their NICs may have the memory of their GPUs.
  bool reach_gpus = false;

  std::string encode() const;
  static NicPlan decode(std::string_view text);  // throws Error
};

// Rank r is GPU number r of the machine.
NicPlan nic_plan(const Machine& machine,
                 std::span<const std::shared_ptr<const ImportedSchedule>> schedules);

}  // namespace weft
