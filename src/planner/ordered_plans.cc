// See ordered_plans.h.
#include "src/planner/ordered_plans.h"

#include <algorithm>
#include <map>

#include "algorithms/generators/ordered.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/parallel_for.h"
#include "src/topology/graph/flow_graph.h"
#include "src/topology/graph/pipeline.h"
#include "src/topology/graph/routes.h"

namespace weft {
namespace {

constexpr size_t kMostUsualRanks = 32, kMostOrderedRanks = 128;
constexpr double kNoWay = 1e6;  // us
constexpr CollectiveKind kRings[] = {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                                     CollectiveKind::kReduceScatter, CollectiveKind::kBroadcast,
                                     CollectiveKind::kReduce};
static_assert(std::size(kRings) + 1 == kMostOrderedSchedules);

// How long a megabyte takes from each rank to each other.
class Distances {
 public:
  explicit Distances(const Machine& machine) : n_(gpus(machine).size()) {
    const FlowGraph ways = flow_graph(machine);
    Routes routes(ways.machine);
    for (size_t a = 0; a < n_; a++)
      for (size_t b = 0; b < n_; b++) {
        double gbps = 1e9, us = 0;
        const auto links = routes.between(static_cast<int>(a), static_cast<int>(b));
        for (const int32_t l : links) {
          const Link& link = ways.machine.links[static_cast<size_t>(l)];
          gbps = std::min(gbps, link.gbps);
          us += link.us;
        }
        us_.push_back(links.empty() ? kNoWay : 1e3 / gbps + us);
      }
  }
  // Links may differ by direction.
  double between(int a, int b) const { return std::max(one_way(a, b), one_way(b, a)); }

 private:
  double one_way(int a, int b) const {
    return us_[static_cast<size_t>(a) * n_ + static_cast<size_t>(b)];
  }
  size_t n_;
  std::vector<double> us_;
};

// The slowest step limits a ring. Of equal ones the shorter is better.
double length(const std::vector<int>& ring, const Distances& distances) {
  double sum = 0, worst = 0;
  for (size_t i = 0; i < ring.size(); i++) {
    const double step = distances.between(ring[i], ring[(i + 1) % ring.size()]);
    sum += step;
    worst = std::max(worst, step);
  }
  return worst * static_cast<double>(ring.size()) + sum;
}

std::shared_ptr<const ImportedSchedule> proved(Schedule schedule) {
  ScheduleFile file;
  file.schedule = std::move(schedule);
  const std::string name = file.schedule.name;
  try {
    return ImportedSchedules::only(file, name)->all().front();
  } catch (const Error& error) {
    WEFT_WARN("{} is not used: {}", name, error.what());
    return nullptr;
  }
}

}  // namespace

std::vector<int> ring_order(const Machine& machine) {
  const std::vector<int> all = gpus(machine);
  std::vector<int> order;
  for (const int gpu : pipeline_order(machine))
    order.push_back(static_cast<int>(std::find(all.begin(), all.end(), gpu) - all.begin()));
  const Distances distances(machine);
  double best = length(order, distances);
  // Turning a part of the ring round changes two of its steps.
  for (bool better = order.size() > 3; better;) {
    better = false;
    for (size_t a = 1; a < order.size(); a++)
      for (size_t b = a + 1; b < order.size(); b++) {
        std::vector<int> other = order;
        std::reverse(other.begin() + static_cast<long>(a),
                     other.begin() + static_cast<long>(b) + 1);
        const double value = length(other, distances);
        if (value >= best * (1 - 1e-9)) continue;
        best = value;
        order = std::move(other);
        better = true;
      }
  }
  return order;
}

std::vector<std::shared_ptr<const ImportedSchedule>> ordered_schedules(const Machine& machine,
                                                                       bool asked_for) {
  const auto n = static_cast<int>(gpus(machine).size());
  if (n < 3 || static_cast<size_t>(n) > (asked_for ? kMostOrderedRanks : kMostUsualRanks))
    return {};
  const std::vector<int> order = ring_order(machine);
  std::vector<std::shared_ptr<const ImportedSchedule>> made(kMostOrderedSchedules);
  parallel_for(made.size(), [&] {
    return [&](size_t i) {
      made[i] = proved(i < std::size(kRings) ? ordered_ring({kRings[i], n, 0}, order, true)
                                             : ordered_chain(order));
    };
  });
  std::erase(made, nullptr);
  return made;
}

std::optional<CollectiveKind> ordered_kind(std::string_view name, CollectiveKind wanted) {
  if (name == "ordered_chain") return CollectiveKind::kAllReduce;
  const bool has = std::find(std::begin(kRings), std::end(kRings), wanted) != std::end(kRings);
  if (name == "ordered_ring" && has) return wanted;
  return std::nullopt;
}

}  // namespace weft
