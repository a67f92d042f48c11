// See pipeline.h.
#include "src/topology/graph/pipeline.h"

#include <algorithm>
#include <map>

#include "src/topology/graph/paths.h"

namespace weft {
namespace {

// Time to move a gigabyte, in ms; a missing path costs a lot.
double cost(const Path& path) { return path.gbps > 0 ? 1000 / path.gbps + path.us / 1000 : 1e6; }

class HostOrder {
 public:
  HostOrder(const PathFinder& finder, std::vector<int> members,
            const std::map<int, NicChoice>& choices)
      : order_(std::move(members)) {
    for (const int a : order_) {
      const NicChoice& choice = choices.at(a);
      end_[a] = choice.nic < 0
                    ? 0
                    : cost(choice.direct) * (1 + static_cast<int>(choice.direct.path_class));
      for (const int b : order_)
        if (a != b) step_[{a, b}] = cost(finder.best(a, b));
    }
  }

  // Starts from the members' own order. Swaps pairs and reverses ranges while that helps. This is
  // exact enough for the few GPUs of a host, and deterministic.
  std::vector<int> run() {
    const size_t count = order_.size();
    for (bool better = count > 1; better;) {
      better = false;
      for (size_t a = 0; a < count; a++) {
        for (size_t b = a + 1; b < count; b++) {
          better = try_change([&](auto& o) { std::swap(o[a], o[b]); }) || better;
          better = try_change([&](auto& o) { std::reverse(o.begin() + a, o.begin() + b + 1); }) ||
                   better;
          better = try_change([&](auto& o) {
                     std::rotate(o.begin() + a, o.begin() + a + 1, o.begin() + b + 1);
                   }) ||
                   better;
        }
      }
    }
    return order_;
  }

 private:
  double total(const std::vector<int>& order) const {
    // The ends carry all traffic that leaves the host, so they weigh as much as all steps.
    double sum =
        (end_.at(order.front()) + end_.at(order.back())) * static_cast<double>(order.size());
    for (size_t i = 0; i + 1 < order.size(); i++) sum += step_.at({order[i], order[i + 1]});
    return sum;
  }

  template <typename Change>
  bool try_change(Change change) {
    std::vector<int> other = order_;
    change(other);
    if (total(other) >= total(order_) * (1 - 1e-9)) return false;
    order_ = std::move(other);
    return true;
  }

  std::vector<int> order_;
  std::map<int, double> end_;
  std::map<std::pair<int, int>, double> step_;
};

}  // namespace

std::vector<int> pipeline_order(const Machine& machine) {
  std::map<int, std::vector<int>> hosts;
  for (const int gpu : gpus(machine)) hosts[machine.nodes[gpu].host].push_back(gpu);
  std::map<int, NicChoice> choices;
  for (auto& choice : nic_affinity(machine)) choices[choice.gpu] = choice;
  const PathFinder finder(machine);
  std::vector<int> order;
  for (auto& [_, members] : hosts) {
    const auto part = HostOrder(finder, members, choices).run();
    order.insert(order.end(), part.begin(), part.end());
  }
  return order;
}

}  // namespace weft
