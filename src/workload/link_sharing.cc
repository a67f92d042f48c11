// See link_sharing.h.
#include "src/workload/link_sharing.h"

#include <algorithm>
#include <set>

namespace weft::workload {

LinkSharing::LinkSharing(const std::vector<const CommCost*>& costs) : loads_(costs.size()) {
  std::map<int, std::vector<std::pair<int, double>>> columns;
  for (size_t c = 0; c < costs.size(); c++)
    for (const LinkLoad& load : costs[c]->loads)
      columns[load.link].emplace_back(static_cast<int>(c), load.share);
  std::set<std::vector<std::pair<int, double>>> known;
  for (const auto& [link, column] : columns) {
    if (!known.insert(column).second) continue;
    for (const auto& [cost, share] : column)
      loads_[static_cast<size_t>(cost)].emplace_back(classes_, share);
    classes_++;
  }
}

const std::vector<double>& LinkSharing::speeds(const std::vector<Runner>& running) {
  const auto [it, fresh] = memo_.try_emplace(running);
  if (fresh) it->second = find(running);
  return it->second;
}

// Raises the speeds of one priority together. Who meets a full link, or full speed, stays there.
std::vector<double> LinkSharing::find(const std::vector<Runner>& running) const {
  std::vector<double> speed(running.size(), 0.0);
  std::vector<double> room(static_cast<size_t>(classes_), 1.0);
  std::set<int, std::greater<>> priorities;
  for (const Runner& each : running) priorities.insert(each.priority);
  for (const int priority : priorities) {
    std::vector<size_t> rising;
    for (size_t i = 0; i < running.size(); i++)
      if (running[i].priority == priority) rising.push_back(i);
    while (!rising.empty()) {
      std::map<int, double> asked;
      for (const size_t i : rising)
        for (const auto& [link, share] : loads_[static_cast<size_t>(running[i].cost)])
          asked[link] += share;
      double step = 1;
      for (const size_t i : rising) step = std::min(step, 1 - speed[i]);
      for (const auto& [link, share] : asked)
        step = std::min(step, std::max(0.0, room[static_cast<size_t>(link)]) / share);
      for (const size_t i : rising) speed[i] += step;
      for (const auto& [link, share] : asked) room[static_cast<size_t>(link)] -= step * share;
      const auto stays = [&](size_t i) {
        if (speed[i] >= 1 - 1e-12) return true;
        for (const auto& [link, share] : loads_[static_cast<size_t>(running[i].cost)])
          if (share > 0 && room[static_cast<size_t>(link)] <= 1e-12) return true;
        return false;
      };
      rising.erase(std::remove_if(rising.begin(), rising.end(), stays), rising.end());
    }
  }
  return speed;
}

}  // namespace weft::workload
