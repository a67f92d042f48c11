// Megatron's modes: (a) as it is, (b) overlap-grad-reduce, (c) and overlap-param-gather.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "src/workload/passes.h"
#include "src/workload/rewrite.h"

namespace weft::workload {
namespace {

bool is_gradient(const Op& op) { return op.phase == Phase::kGradient; }
bool is_parameter(const Op& op) { return op.phase == Phase::kParameter; }

// Neighbours in the list that are of one kind and group, until a bucket has enough bytes.
std::vector<std::vector<int>> buckets_of(const Graph& graph, bool (*chosen)(const Op&),
                                         double least) {
  std::map<std::pair<int, CollectiveKind>, std::vector<int>> open;
  std::map<std::pair<int, CollectiveKind>, double> bytes;
  std::vector<std::vector<int>> buckets;
  for (size_t i = 0; i < graph.ops.size(); i++) {
    const Op& op = graph.ops[i];
    if (!op.collective || !chosen(op) || op.parts > 1) continue;
    const std::pair key{op.group, *op.collective};
    open[key].push_back(static_cast<int>(i));
    bytes[key] += op.bytes;
    if (bytes[key] < least) continue;
    if (open[key].size() > 1) buckets.push_back(open[key]);
    open[key].clear();
    bytes[key] = 0;
  }
  for (const auto& [key, members] : open)
    if (members.size() > 1) buckets.push_back(members);
  return buckets;
}

double bytes_of(const Graph& graph, bool (*chosen)(const Op&)) {
  std::map<int, double> bytes;
  for (const Op& op : graph.ops)
    if (op.collective && chosen(op)) bytes[op.group] += op.bytes;
  double most = 0;
  for (const auto& [group, sum] : bytes) most = std::max(most, sum);
  return most;
}

// Forward begins with the first layer. If the gathers come in another order, it waits.
void warn_of_order(Search& search) {
  std::map<int, std::vector<int>> gathers, forwards;  // layers, per first rank
  const Graph& graph = search.best();
  const Actors actors = actors_of(graph);
  for (const Op& op : graph.ops)
    for (const int actor : actors.of(op)) {
      if (op.layer < 0) continue;
      if (op.collective && is_parameter(op)) gathers[actor].push_back(op.layer);
      auto& forward = forwards[actor];
      if (!op.collective && op.phase == Phase::kForward &&
          std::find(forward.begin(), forward.end(), op.layer) == forward.end())
        forward.push_back(op.layer);
    }
  for (const auto& [actor, layers] : gathers) {
    std::vector<int> wanted;
    for (const int layer : forwards[actor])
      if (std::find(layers.begin(), layers.end(), layer) != layers.end()) wanted.push_back(layer);
    std::vector<int> seen;
    for (const int layer : layers)
      if (std::find(seen.begin(), seen.end(), layer) == seen.end()) seen.push_back(layer);
    if (seen == wanted || wanted.empty()) continue;  // (or no forward is known)
    search.note(fmt::format(
        "rank {}: parameters are not gathered in the order of forward (layer {} comes first, "
        "forward begins with {}): forward waits for gathers that it does not need yet",
        actors.ranks[static_cast<size_t>(actor)].front(), seen.front(), wanted.front()));
    return;
  }
}

// One mode with several bucket sizes: the best stays.
void try_buckets(Search& search, const Graph& hoisted, bool (*chosen)(const Op&),
                 const std::string& what) {
  const double all = bytes_of(hoisted, chosen);
  if (all <= 0) return;
  search.offer(hoisted, what + ", a call a layer");
  for (const double least : {all / 16, all / 8, all / 4, all / 2, all}) {
    const auto buckets = buckets_of(hoisted, chosen, least * (1 - 1e-9));
    if (buckets.empty()) continue;
    search.offer(merge(hoisted, buckets),
                 fmt::format("{}, buckets of {:.4g} MB", what, least * 1e-6));
  }
}

}  // namespace

void pass_megatron(Search& search) {
  warn_of_order(search);
  try_buckets(search, hoist(search.best(), is_gradient, "grad", 0), is_gradient,
              "overlap-grad-reduce");
  try_buckets(search, hoist(search.best(), is_parameter, "param", 0), is_parameter,
              "overlap-param-gather");
}

}  // namespace weft::workload
