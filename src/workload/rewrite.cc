// See rewrite.h.
#include "src/workload/rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace weft::workload {
namespace {

Graph without_ops(const Graph& graph) {
  Graph empty = graph;
  empty.ops.clear();
  return empty;
}

double part_us(const Op& op, double low, double high, double split_us, bool causal) {
  const double context = causal ? op.context : 0;
  const double share = (1 - context) * (high - low) + context * (high * high - low * low);
  return std::max(op.us * share, op.floor_us) + split_us;
}

Op part_of(const Op& op, double low, double high, int part, int parts, const Graph& graph,
           const Cutting& cutting) {
  Op made = op;
  made.id = fmt::format("{}/{}", op.id, part);
  made.after.clear();
  for (Share& share : made.shares) {
    const double from = share.low, size = share.high - share.low;
    share.low = from + low * size;
    share.high = from + high * size;
  }
  if (!op.collective) {
    made.us = part_us(op, low, high, graph.split_us, cutting.causal);
    return made;
  }
  made.bytes = op.bytes * (high - low);
  made.us = op.us * (high - low);
  if (cutting.one_call && op.parts == 1) {
    made.part = part;
    made.parts = parts;
    made.call_bytes = op.bytes;
  }
  return made;
}

bool is_backward(const Op& op) {
  return op.phase == Phase::kInputGradient || op.phase == Phase::kWeightGradient;
}

// The parts of an operation, as new operations; where they lie in the original one.
struct Parts {
  std::vector<double> low, high;
  std::vector<int> index;
};

// Where a new operation goes in the list: its block's place, its part, its old number.
struct Rank {
  int block, part, op, made;
  auto operator<=>(const Rank&) const = default;
};

}  // namespace

std::vector<double> equal_cuts(int parts) {
  std::vector<double> cuts;
  for (int i = 1; i < parts; i++) cuts.push_back(static_cast<double>(i) / parts);
  return cuts;
}

Graph cut(const Graph& graph, const Cutting& cutting) {
  Graph result = without_ops(graph);
  std::vector<Parts> parts(graph.ops.size());
  std::vector<Rank> ranks;
  std::map<int, int> first;  // operation of each block
  for (size_t i = 0; i < graph.ops.size(); i++) {
    const Op& op = graph.ops[i];
    // A part of a call is not cut again.
    const std::vector<double> cuts = op.parts > 1 ? std::vector<double>{} : cutting.cuts[i];
    const auto n = static_cast<int>(cuts.size()) + 1;
    const int block = cutting.blocks.empty() ? -1 : cutting.blocks[i];
    const int home =
        block < 0 ? static_cast<int>(i) : first.emplace(block, static_cast<int>(i)).first->second;
    for (int k = 0; k < n; k++) {
      const double low = k == 0 ? 0 : cuts[static_cast<size_t>(k) - 1];
      const double high = k + 1 == n ? 1 : cuts[static_cast<size_t>(k)];
      const double from = op.shares.front().low, size = op.shares.front().high - from;
      parts[i].low.push_back(from + low * size);
      parts[i].high.push_back(from + high * size);
      parts[i].index.push_back(static_cast<int>(result.ops.size()));
      // Backward begins with the last tokens.
      const int turn = block < 0 ? 0 : is_backward(op) ? n - 1 - k : k;
      ranks.push_back({home, turn, static_cast<int>(i), static_cast<int>(result.ops.size())});
      if (n == 1) {
        result.ops.push_back(op);
        result.ops.back().after.clear();
      } else {
        result.ops.push_back(part_of(op, low, high, k, n, graph, cutting));
      }
    }
  }
  for (size_t i = 0; i < graph.ops.size(); i++) {
    const Op& op = graph.ops[i];
    for (size_t k = 0; k < parts[i].index.size(); k++) {
      std::vector<int>& after = result.ops[static_cast<size_t>(parts[i].index[k])].after;
      for (const int before : op.after) {
        const Parts& theirs = parts[static_cast<size_t>(before)];
        const Op& other = graph.ops[static_cast<size_t>(before)];
        const bool alike = !op.axis.empty() && other.axis == op.axis && op.shares.size() == 1 &&
                           other.shares.size() == 1;
        for (size_t j = 0; j < theirs.index.size(); j++)
          if (!alike || (theirs.low[j] < parts[i].high[k] - 1e-12 &&
                         theirs.high[j] > parts[i].low[k] + 1e-12))
            after.push_back(theirs.index[j]);
      }
      if (!cutting.causal || op.context <= 0) continue;
      if (is_backward(op) && k + 1 < parts[i].index.size()) after.push_back(parts[i].index[k + 1]);
      if (!is_backward(op) && k > 0) after.push_back(parts[i].index[k - 1]);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  std::vector<int> order;
  for (const Rank& each : ranks) order.push_back(each.made);
  return reorder(result, order);
}

Graph substitute(const Graph& graph, const std::map<int, std::vector<StageCall>>& how) {
  Graph result = without_ops(graph);
  std::vector<int> last(graph.ops.size()), index(graph.ops.size());
  for (size_t i = 0; i < graph.ops.size(); i++) {
    const auto it = how.find(static_cast<int>(i));
    index[i] = static_cast<int>(result.ops.size());
    result.ops.push_back(graph.ops[i]);
    if (it != how.end()) {
      result.ops.pop_back();
      int stage = 0;
      for (const StageCall& call : it->second) {
        Op op = graph.ops[i];
        op.id = fmt::format("{}:{}", op.id, stage);
        op.collective = call.kind;
        op.bytes *= call.factor;
        op.us = 0;  // measured for another collective
        op.staged = true;
        op.group = call.group;
        for (Share& share : op.shares) share.stage = stage;
        // Stages of one collective lie on different links: a later one must not keep the next
        // collective's first stage waiting.
        if (op.stream != kComputeStream && stage > 0) op.stream += fmt::format(":{}", stage);
        if (stage++ > 0) op.after.clear();
        result.ops.push_back(std::move(op));
      }
    }
    last[i] = static_cast<int>(result.ops.size()) - 1;
  }
  for (size_t i = 0; i < graph.ops.size(); i++) {
    std::vector<int>& after = result.ops[static_cast<size_t>(index[i])].after;
    after.clear();
    for (const int before : graph.ops[i].after) after.push_back(last[static_cast<size_t>(before)]);
    for (int k = index[i] + 1; k <= last[i]; k++)
      result.ops[static_cast<size_t>(k)].after.push_back(k - 1);
  }
  return result;
}

Graph merge(const Graph& graph, const std::vector<std::vector<int>>& buckets) {
  std::vector<int> into(graph.ops.size());
  std::iota(into.begin(), into.end(), 0);
  for (const auto& bucket : buckets) {
    const int target = *std::max_element(bucket.begin(), bucket.end());
    for (const int each : bucket) into[static_cast<size_t>(each)] = target;
  }
  Graph result = without_ops(graph);
  std::vector<int> index(graph.ops.size(), -1);
  for (size_t i = 0; i < graph.ops.size(); i++) {
    if (into[i] != static_cast<int>(i)) continue;
    index[i] = static_cast<int>(result.ops.size());
    result.ops.push_back(graph.ops[i]);
    result.ops.back().after.clear();
  }
  for (size_t i = 0; i < graph.ops.size(); i++) {
    Op& op = result.ops[static_cast<size_t>(index[static_cast<size_t>(into[i])])];
    for (const int before : graph.ops[i].after)
      op.after.push_back(index[static_cast<size_t>(into[static_cast<size_t>(before)])]);
    if (into[i] == static_cast<int>(i)) continue;
    op.bytes += graph.ops[i].bytes;
    op.us += graph.ops[i].us;
    op.shares.insert(op.shares.end(), graph.ops[i].shares.begin(), graph.ops[i].shares.end());
  }
  return result;
}

Graph reorder(const Graph& graph, const std::vector<int>& order) {
  Graph result = without_ops(graph);
  std::vector<int> index(graph.ops.size());
  for (size_t k = 0; k < order.size(); k++)
    index[static_cast<size_t>(order[k])] = static_cast<int>(k);
  for (const int each : order) {
    result.ops.push_back(graph.ops[static_cast<size_t>(each)]);
    std::set<int> after;
    for (const int before : result.ops.back().after)
      after.insert(index[static_cast<size_t>(before)]);
    result.ops.back().after.assign(after.begin(), after.end());
  }
  return result;
}

Graph hoist(const Graph& graph, const std::function<bool(const Op&)>& chosen,
            const std::string& stream, int priority) {
  std::vector<std::pair<int, int>> keys;  // place in the list, twice; old number
  Graph changed = graph;
  for (size_t i = 0; i < graph.ops.size(); i++) {
    int place = static_cast<int>(2 * i);
    if (graph.ops[i].collective && graph.ops[i].parts == 1 && chosen(graph.ops[i])) {
      changed.ops[i].stream = stream;
      changed.ops[i].priority = priority;
      place = -1;
      for (const int before : graph.ops[i].after) place = std::max(place, 2 * before + 1);
    }
    keys.emplace_back(place, static_cast<int>(i));
  }
  std::sort(keys.begin(), keys.end());
  std::vector<int> order;
  for (const auto& [place, op] : keys) order.push_back(op);
  return reorder(changed, order);
}

HostGrid host_grid(const Instances& instances, const std::vector<int>& host_of_rank) {
  HostGrid grid;
  for (const auto& ranks : instances) {
    std::map<int, std::vector<int>> by_host;
    for (const int rank : ranks) by_host[host_of_rank[static_cast<size_t>(rank)]].push_back(rank);
    const size_t each = by_host.begin()->second.size();
    if (by_host.size() < 2 || each < 2) return {};
    for (const auto& [host, mine] : by_host) {
      if (mine.size() != each) return {};
      grid.inside.push_back(mine);
    }
    for (size_t k = 0; k < each; k++) {
      std::vector<int> column;
      for (const auto& [host, mine] : by_host) column.push_back(mine[k]);
      grid.across.push_back(column);
    }
  }
  return grid;
}

}  // namespace weft::workload
