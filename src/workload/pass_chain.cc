// C-Cube: the reduction and the broadcast of an all_reduce are chained part by part, and parts go
// into the next forward in its order as they come.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "src/workload/passes.h"
#include "src/workload/rewrite.h"

namespace weft::workload {
namespace {

bool is_chained(const Op& op) {
  return op.phase == Phase::kGradient && op.collective == CollectiveKind::kAllReduce;
}

// The gradients in the order in which the next forward needs them, after all of backward.
Graph in_forward_order(const Graph& graph) {
  std::vector<int> slots, members;
  for (size_t i = 0; i < graph.ops.size(); i++)
    if (graph.ops[i].collective && is_chained(graph.ops[i])) slots.push_back(static_cast<int>(i));
  members = slots;
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return graph.ops[static_cast<size_t>(a)].layer < graph.ops[static_cast<size_t>(b)].layer;
  });
  std::vector<int> order(graph.ops.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = static_cast<int>(i);
  for (size_t k = 0; k < slots.size(); k++) order[static_cast<size_t>(slots[k])] = members[k];
  return reorder(graph, order);
}

// The collectives of a group become parts of one call, in the order of the list.
Graph as_parts(const Graph& graph) {
  Graph changed = graph;
  std::map<int, std::vector<Op*>> calls;
  for (Op& op : changed.ops)
    if (op.collective && is_chained(op) && op.parts == 1) calls[op.group].push_back(&op);
  for (auto& [group, parts] : calls) {
    double bytes = 0;
    for (const Op* op : parts) bytes += op->bytes;
    for (size_t k = 0; k < parts.size(); k++) {
      parts[k]->stream = "chain";
      parts[k]->part = static_cast<int>(k);
      parts[k]->parts = static_cast<int>(parts.size());
      parts[k]->call_bytes = bytes;
    }
  }
  return changed;
}

}  // namespace

void pass_chain(Search& search) {
  const Graph& graph = search.best();
  std::map<int, std::vector<StageCall>> apart;
  for (size_t i = 0; i < graph.ops.size(); i++)
    if (const Op& op = graph.ops[i]; op.collective && is_chained(op) && op.parts == 1)
      apart[static_cast<int>(i)] = {{CollectiveKind::kReduce, 1, op.group},
                                    {CollectiveKind::kBroadcast, 1, op.group}};
  if (apart.empty()) {
    search.note("chain: there is no all_reduce of gradients");
    return;
  }
  search.offer(substitute(graph, apart), "reduce, then broadcast");
  const Graph ordered = in_forward_order(search.best());
  search.offer(as_parts(ordered), "all_reduce in parts, chained into the next forward");
  search.offer(as_parts(search.best()), "all_reduce in parts, in the order of backward");
}

}  // namespace weft::workload
