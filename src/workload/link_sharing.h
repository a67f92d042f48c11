// How fast collectives run beside each other: the speeds are max-min fair on the links, and those
// of higher priority come first. Remembers the answers. Not thread-safe.
#pragma once

#include <map>
#include <vector>

#include "src/workload/comm_cost.h"

namespace weft::workload {

class LinkSharing {
 public:
  // `costs` of everything that may run. Links that all of them load alike count as one.
  explicit LinkSharing(const std::vector<const CommCost*>& costs);

  // Running collectives: indices of `costs` and their priorities. Gives the speed of each, 1 for
  // what it has alone.
  struct Runner {
    int cost = 0, priority = 0;
    auto operator<=>(const Runner&) const = default;
  };
  const std::vector<double>& speeds(const std::vector<Runner>& running);

 private:
  std::vector<double> find(const std::vector<Runner>& running) const;

  std::vector<std::vector<std::pair<int, double>>> loads_;  // per cost: link class and share
  int classes_ = 0;
  std::map<std::vector<Runner>, std::vector<double>> memo_;
};

}  // namespace weft::workload
