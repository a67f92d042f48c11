// See check.h.
#include "src/workload/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "src/base/error.h"

namespace weft::workload {
namespace {

std::string place_in(const std::string& where, const Op& op) {
  return op.line > 0 ? fmt::format("{}: line {}: operation '{}'", where, op.line, op.id)
                     : fmt::format("{}: operation '{}'", where, op.id);
}

// What each operation waits for. With `streams`, also the one before it in a stream of its ranks.
std::vector<std::vector<int>> waits_of(const Graph& graph, bool streams) {
  std::vector<std::vector<int>> waits(graph.ops.size());
  const Actors actors = actors_of(graph);
  std::map<std::pair<int, std::string_view>, int> last;
  for (size_t i = 0; i < graph.ops.size(); i++) {
    const Op& op = graph.ops[i];
    waits[i] = op.after;
    if (!streams) continue;
    for (const int actor : actors.of(op)) {
      const auto [it, fresh] = last.try_emplace({actor, op.stream}, static_cast<int>(i));
      if (!fresh) waits[i].push_back(std::exchange(it->second, static_cast<int>(i)));
    }
  }
  return waits;
}

std::vector<int> sorted_order(const Graph& graph, bool streams, const std::string& where) {
  const auto waits = waits_of(graph, streams);
  std::vector<std::vector<int>> followers(waits.size());
  std::vector<int> left(waits.size()), order;
  for (size_t i = 0; i < waits.size(); i++) {
    left[i] = static_cast<int>(waits[i].size());
    for (const int w : waits[i]) followers[static_cast<size_t>(w)].push_back(static_cast<int>(i));
    if (left[i] == 0) order.push_back(static_cast<int>(i));
  }
  for (size_t k = 0; k < order.size(); k++)
    for (const int f : followers[static_cast<size_t>(order[k])])
      if (--left[static_cast<size_t>(f)] == 0) order.push_back(f);
  if (order.size() == waits.size()) return order;
  // Walk back until an operation repeats: it is on a circle.
  int at = 0;
  while (left[static_cast<size_t>(at)] == 0) at++;
  std::set<int> seen;
  while (seen.insert(at).second)
    for (const int w : waits[static_cast<size_t>(at)])
      if (left[static_cast<size_t>(w)] > 0) {
        at = w;
        break;
      }
  fail(ncclInvalidArgument, "{} waits for itself, in a circle of dependencies{}",
       place_in(where, graph.ops[static_cast<size_t>(at)]),
       streams ? " and of the order of streams" : "");
}

const std::vector<int>& actors_in(const Actors& actors, const Graph& graph, int op) {
  return actors.of(graph.ops[static_cast<size_t>(op)]);
}

bool meet(const std::vector<int>& a, const std::vector<int>& b) {
  for (const int each : a)
    if (std::binary_search(b.begin(), b.end(), each)) return true;
  return false;
}

}  // namespace

std::vector<int> order_of(const Graph& graph, const std::string& where) {
  return sorted_order(graph, true, where);
}

void check_graph(const Graph& graph, const std::string& where) {
  const Actors actors = actors_of(graph);
  for (size_t i = 0; i < graph.ops.size(); i++)
    for (const int before : graph.ops[i].after)
      if (!meet(actors_in(actors, graph, static_cast<int>(i)), actors_in(actors, graph, before)))
        fail(ncclInvalidArgument,
             "{} is after '{}', which no rank of it runs: only communication crosses ranks",
             place_in(where, graph.ops[i]), graph.ops[static_cast<size_t>(before)].id);
  (void)sorted_order(graph, false, where);
  (void)sorted_order(graph, true, where);
}

}  // namespace weft::workload
