// Lancet: weight gradients run under the all-to-alls of backward; in forward, ranges of operations
// around all-to-alls are cut into parts. Dynamic programming chooses the ranges.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "src/workload/list_schedule.h"
#include "src/workload/passes.h"
#include "src/workload/rewrite.h"

namespace weft::workload {
namespace {

constexpr int kMostParts = 8;         // powers of two are tried
constexpr size_t kLongestRange = 10;  // operations

bool is_all_to_all(const Op& op) { return op.collective == CollectiveKind::kAllToAll; }

// An operation of forward, as the dynamic program sees it.
struct Item {
  int op = 0;
  bool comm = false;
  std::vector<double> part_us;  // when cut into 1, 2, 4... parts
};

std::vector<Item> forward_items(const Graph& graph, CommCosts& costs, const Actors& actors,
                                int actor) {
  std::vector<Item> items;
  for (size_t i = 0; i < graph.ops.size(); i++) {
    const Op& op = graph.ops[i];
    const auto& mine = actors.of(op);
    if (op.phase != Phase::kForward || op.axis.empty() || op.parts > 1 ||
        !std::binary_search(mine.begin(), mine.end(), actor))
      continue;
    Item& item = items.emplace_back();
    item.op = static_cast<int>(i);
    item.comm = op.collective.has_value();
    for (int k = 1; k <= kMostParts; k *= 2) {
      if (op.collective) {
        const auto& instances = graph.groups[static_cast<size_t>(op.group)].instances;
        item.part_us.push_back(costs.cost(*op.collective, op.bytes / k, instances).us);
      } else {
        item.part_us.push_back(std::max(op.us / k, op.floor_us) + (k > 1 ? graph.split_us : 0));
      }
    }
  }
  return items;
}

// P(j, i, k): the time of the operations from j up to i in k parts each, all parts of one operation
// after those of the one before, on one compute stream and one of communication.
double range_us(const std::vector<Item>& items, size_t from, size_t to, size_t power) {
  const size_t parts = size_t{1} << power;
  std::vector<double> done(parts, 0);
  double free_us[2] = {0, 0};
  for (size_t i = from; i < to; i++)
    for (size_t k = 0; k < parts; k++) {
      double& free = free_us[items[i].comm ? 1 : 0];
      free = std::max(free, done[k]) + items[i].part_us[power];
      done[k] = free;
    }
  return done.back();
}

// T(i) = min over j and k of T(j) + P(j, i, k). Gives the parts of every operation.
std::vector<std::vector<double>> partition(const std::vector<Item>& items, size_t operations) {
  std::vector<double> best(items.size() + 1, std::numeric_limits<double>::infinity());
  std::vector<std::pair<size_t, size_t>> from(items.size() + 1);
  best[0] = 0;
  for (size_t i = 1; i <= items.size(); i++)
    for (size_t j = i > kLongestRange ? i - kLongestRange : 0; j < i; j++)
      for (size_t power = 0; power < items[j].part_us.size(); power++) {
        const double us = best[j] + range_us(items, j, i, power);
        if (us >= best[i]) continue;
        best[i] = us;
        from[i] = {j, power};
      }
  std::vector<std::vector<double>> cuts(operations);
  for (size_t i = items.size(); i > 0; i = from[i].first)
    for (size_t k = from[i].first; k < i; k++)
      cuts[static_cast<size_t>(items[k].op)] = equal_cuts(1 << from[i].second);
  return cuts;
}

}  // namespace

void pass_lancet(Search& search) {
  const auto& ops = search.best().ops;
  if (std::none_of(ops.begin(), ops.end(), is_all_to_all)) {
    search.note("lancet: there is no all-to-all");
    return;
  }
  const Graph apart = hoist(search.best(), is_all_to_all, "ep", 1);
  search.offer_with_slack(apart, "all-to-all on its own stream", 1.0001);
  const auto weights = [](const Op& op) { return op.phase == Phase::kWeightGradient; };
  for (const double overrun : {1.0, 1.3, 1e9})
    search.offer(
        fill_gaps(apart, search.costs(), {weights, overrun}),
        overrun > 2
            ? std::string("weight gradients under all-to-all, all that can run")
            : fmt::format("weight gradients under all-to-all, up to {} times as long", overrun));
  const Graph base = search.best();
  const Actors actors = actors_of(base);
  Cutting cutting;
  cutting.cuts.resize(base.ops.size());
  for (size_t actor = 0; actor < actors.ranks.size(); actor++) {
    const auto items = forward_items(base, search.costs(), actors, static_cast<int>(actor));
    const auto cuts = partition(items, base.ops.size());
    for (size_t i = 0; i < cuts.size(); i++)
      if (!cuts[i].empty()) cutting.cuts[i] = cuts[i];
  }
  search.offer(cut(base, cutting), "forward ranges in parts, by dynamic programming");
  for (const int parts : {2, 4}) {
    Cutting equal;
    for (const Op& op : base.ops)
      equal.cuts.push_back(op.phase == Phase::kForward && !op.axis.empty() ? equal_cuts(parts)
                                                                           : std::vector<double>{});
    search.offer(cut(base, equal), fmt::format("all of forward in {} parts", parts));
  }
}

}  // namespace weft::workload
