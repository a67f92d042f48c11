// See max_flow.h.
#include "algorithms/bounds/max_flow.h"

#include <algorithm>

namespace weft {

MaxFlow::MaxFlow(int nodes) : leaving_(static_cast<size_t>(nodes)) {}

int MaxFlow::add_edge(int from, int to, int64_t capacity) {
  const auto edge = static_cast<int32_t>(capacity_.size());
  capacity_.push_back(capacity);
  arcs_.push_back({to, 0});
  arcs_.push_back({from, 0});
  leaving_[static_cast<size_t>(from)].push_back(2 * edge);
  leaving_[static_cast<size_t>(to)].push_back(2 * edge + 1);
  return edge;
}

// Distances to the sink. Dead ends have none, so push() never goes there.
bool MaxFlow::find_levels(int source, int sink) {
  level_.assign(leaving_.size(), -1);
  level_[static_cast<size_t>(sink)] = 0;
  queue_.assign(1, sink);
  for (size_t head = 0; head < queue_.size(); head++) {
    const auto node = static_cast<size_t>(queue_[head]);
    for (const int32_t number : leaving_[node]) {
      const int32_t from = arcs_[static_cast<size_t>(number)].to;
      int32_t& level = level_[static_cast<size_t>(from)];
      if (level >= 0 || arcs_[static_cast<size_t>(number ^ 1)].residual == 0) continue;
      level = level_[node] + 1;
      if (from == source) return true;  // nodes as far or farther do not help
      queue_.push_back(from);
    }
  }
  return false;
}

int64_t MaxFlow::push(int node, int sink, int64_t limit) {
  if (node == sink) return limit;
  const auto n = static_cast<size_t>(node);
  int64_t pushed = 0;
  for (size_t& i = next_[n]; i < leaving_[n].size(); i++) {
    const int32_t number = leaving_[n][i];
    Arc& arc = arcs_[static_cast<size_t>(number)];
    if (arc.residual == 0 || level_[static_cast<size_t>(arc.to)] != level_[n] - 1) continue;
    const int64_t part = push(arc.to, sink, std::min(limit - pushed, arc.residual));
    arc.residual -= part;
    arcs_[static_cast<size_t>(number ^ 1)].residual += part;
    pushed += part;
    if (pushed == limit) return pushed;
  }
  return pushed;
}

std::vector<bool> MaxFlow::source_side() const {
  std::vector<bool> side(leaving_.size(), false);
  side[static_cast<size_t>(source_)] = true;
  std::vector<int32_t> reached{source_};
  for (size_t head = 0; head < reached.size(); head++)
    for (const int32_t number : leaving_[static_cast<size_t>(reached[head])]) {
      const Arc& arc = arcs_[static_cast<size_t>(number)];
      if (arc.residual == 0 || side[static_cast<size_t>(arc.to)]) continue;
      side[static_cast<size_t>(arc.to)] = true;
      reached.push_back(arc.to);
    }
  return side;
}

void MaxFlow::clear(int nodes) {
  capacity_.clear();
  arcs_.clear();
  for (auto& arcs : leaving_) arcs.clear();
  leaving_.resize(static_cast<size_t>(nodes));
}

int64_t MaxFlow::run(int source, int sink, int64_t limit) {
  for (size_t e = 0; e < capacity_.size(); e++) {
    arcs_[2 * e].residual = capacity_[e];
    arcs_[2 * e + 1].residual = 0;
  }
  source_ = source;
  int64_t flow = 0;
  while (flow < limit && find_levels(source, sink)) {
    next_.assign(leaving_.size(), 0);
    flow += push(source, sink, limit - flow);
  }
  return flow;
}

}  // namespace weft
