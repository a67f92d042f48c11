// Centauri: what a collective may become (primitive substitution, group partition, workload
// partition), decided in three tiers: model, layer, operation.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "src/workload/list_schedule.h"
#include "src/workload/passes.h"
#include "src/workload/rewrite.h"

namespace weft::workload {
namespace {

using Kind = CollectiveKind;
constexpr size_t kMostSignatures = 8;  // the heaviest are looked at

// Collectives that are treated alike.
struct Signature {
  Kind kind;
  double bytes;
  size_t size;
  Phase phase;
  auto operator<=>(const Signature&) const = default;
};

Signature signature_of(const Graph& graph, const Op& op) {
  return {*op.collective, op.bytes,
          graph.groups[static_cast<size_t>(op.group)].instances.front().size(), op.phase};
}

// The heaviest first.
std::vector<std::pair<Signature, std::vector<int>>> signatures(const Graph& graph,
                                                               CommCosts& costs) {
  std::map<Signature, std::vector<int>> by;
  std::map<Signature, double> us;
  for (size_t i = 0; i < graph.ops.size(); i++) {
    const Op& op = graph.ops[i];
    if (!op.collective || op.parts > 1 || op.collective == Kind::kSendRecv) continue;
    const Signature key = signature_of(graph, op);
    by[key].push_back(static_cast<int>(i));
    us[key] +=
        costs.cost(*op.collective, op.bytes, graph.groups[static_cast<size_t>(op.group)].instances)
            .us;
  }
  std::vector<std::pair<Signature, std::vector<int>>> all(by.begin(), by.end());
  std::stable_sort(all.begin(), all.end(),
                   [&](const auto& a, const auto& b) { return us[a.first] > us[b.first]; });
  if (all.size() > kMostSignatures) all.resize(kMostSignatures);
  return all;
}

std::string describe_signature(const Signature& signature) {
  return fmt::format("{} of {:.4g} MB in {}", name(signature.kind), signature.bytes * 1e-6,
                     name_of(signature.phase));
}

// Primitive substitution: all_reduce as reduce_scatter and all_gather.
Graph as_scatter_and_gather(const Graph& graph, const std::vector<int>& ops) {
  std::map<int, std::vector<StageCall>> how;
  for (const int op : ops) {
    const int group = graph.ops[static_cast<size_t>(op)].group;
    how[op] = {{Kind::kReduceScatter, 1, group}, {Kind::kAllGather, 1, group}};
  }
  return substitute(graph, how);
}

// Group partition: first inside hosts, then across, or the other way round. Empty: no such grid.
std::map<int, std::vector<StageCall>> by_hosts(Graph& graph, const std::vector<int>& ops,
                                               const std::vector<int>& hosts) {
  std::map<int, std::vector<StageCall>> how;
  for (const int number : ops) {
    const Op& op = graph.ops[static_cast<size_t>(number)];
    const Group group = graph.groups[static_cast<size_t>(op.group)];
    const HostGrid grid = host_grid(group.instances, hosts);
    if (grid.inside.empty()) return {};
    const int inside = group_of(graph, group.name + "/host", grid.inside);
    const int across = group_of(graph, group.name + "/across", grid.across);
    const double shard = 1.0 / static_cast<double>(grid.inside.front().size());
    switch (*op.collective) {
      case Kind::kAllReduce:
        how[number] = {{Kind::kReduceScatter, 1, inside},
                       {Kind::kAllReduce, shard, across},
                       {Kind::kAllGather, 1, inside}};
        break;
      case Kind::kAllGather:
        how[number] = {{Kind::kAllGather, shard, across}, {Kind::kAllGather, 1, inside}};
        break;
      case Kind::kReduceScatter:
        how[number] = {{Kind::kReduceScatter, 1, inside}, {Kind::kReduceScatter, shard, across}};
        break;
      case Kind::kAllToAll:
        how[number] = {{Kind::kAllToAll, 1, inside}, {Kind::kAllToAll, 1, across}};
        break;
      default:
        return {};
    }
  }
  return how;
}

// Workload partition: the collectives, and the compute before and after them, in parts. Parts of
// attention are whole sequences. nullopt: there are not as many.
std::optional<Graph> in_parts(const Graph& graph, const std::vector<int>& ops, int parts) {
  std::set<int> chosen(ops.begin(), ops.end());
  const auto join = [&](int op, const std::string& axis) {
    const Op& other = graph.ops[static_cast<size_t>(op)];
    if (!other.collective && other.axis == axis) chosen.insert(op);
  };
  std::vector<int> sorted = ops;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < graph.ops.size(); i++)
    for (const int before : graph.ops[i].after) {
      if (std::binary_search(sorted.begin(), sorted.end(), static_cast<int>(i)))
        join(before, graph.ops[i].axis);
      if (std::binary_search(sorted.begin(), sorted.end(), before))
        join(static_cast<int>(i), graph.ops[static_cast<size_t>(before)].axis);
    }
  for (const int op : chosen)
    if (graph.ops[static_cast<size_t>(op)].context > 0 && graph.batch > 0 && parts > graph.batch)
      return std::nullopt;
  Cutting cutting;
  for (size_t i = 0; i < graph.ops.size(); i++)
    cutting.cuts.push_back(chosen.count(static_cast<int>(i)) > 0 ? equal_cuts(parts)
                                                                 : std::vector<double>{});
  return cut(graph, cutting);
}

bool can_be_cut(const Graph& graph, const std::vector<int>& ops) {
  return std::all_of(ops.begin(), ops.end(),
                     [&](int op) { return !graph.ops[static_cast<size_t>(op)].axis.empty(); });
}

// Nothing but data decides when a collective runs; what the next operation needs comes first.
void model_tier(Search& search) {
  const auto synchronizes = [](const Op& op) {
    return op.phase == Phase::kGradient || op.phase == Phase::kParameter;
  };
  search.offer_with_slack(hoist(search.best(), synchronizes, "sync", 0),
                          "model tier: gradients and parameters beside compute, low priority",
                          1.0001);
  const auto waited_for = [&](const Op& op) {
    return op.stream == kComputeStream && !synchronizes(op);
  };
  search.offer_with_slack(hoist(search.best(), waited_for, "layer", 1),
                          "model tier: activations on a stream of high priority", 1.0001);
}

void layer_tier(Search& search) {
  const auto weights = [](const Op& op) { return op.phase == Phase::kWeightGradient; };
  for (const double overrun : {1.0, 1e9})
    search.offer(fill_gaps(search.best(), search.costs(), {weights, overrun}),
                 fmt::format("layer tier: weight gradients under collectives{}",
                             overrun > 2 ? ", all that can run" : " that are longer"));
}

void operation_tier(Search& search) {
  const std::vector<int> hosts = search.host_of_rank();
  const auto all = signatures(search.best(), search.costs());
  for (const auto& [signature, unused] : all) {
    // What was taken for another signature has changed the numbers.
    const auto current = [&] {
      std::vector<int> ops;
      const Graph& graph = search.best();
      for (size_t i = 0; i < graph.ops.size(); i++)
        if (graph.ops[i].collective && graph.ops[i].parts == 1 &&
            signature_of(graph, graph.ops[i]) == signature)
          ops.push_back(static_cast<int>(i));
      return ops;
    };
    const std::string what = describe_signature(signature);
    // Stages are not replaced again, and parts only together with the others of their call.
    const auto replaceable = [&] {
      std::vector<int> ops = current();
      std::erase_if(ops, [&](int number) {
        const Op& op = search.best().ops[static_cast<size_t>(number)];
        return op.staged || op.shares.front().low > 0 || op.shares.front().high < 1;
      });
      return ops;
    };
    if (const auto ops = replaceable(); !ops.empty()) {
      Graph graph = search.best();
      const auto how = by_hosts(graph, ops, hosts);
      if (!how.empty()) search.offer(substitute(graph, how), what + ": by hosts");
    }
    if (const auto ops = replaceable(); !ops.empty() && signature.kind == Kind::kAllReduce)
      search.offer(as_scatter_and_gather(search.best(), ops),
                   what + ": reduce_scatter and all_gather");
    const auto ops = current();
    if (ops.empty() || !can_be_cut(search.best(), ops)) continue;
    const Graph whole = search.best();
    for (const int parts : {2, 4, 8})
      if (const std::optional<Graph> graph = in_parts(whole, ops, parts))
        search.offer(*graph, fmt::format("{}: {} parts", what, parts));
  }
}

}  // namespace

void pass_centauri(Search& search) {
  model_tier(search);
  layer_tier(search);
  operation_tier(search);
  operation_tier(search);  // what substitution gave may be cut
  layer_tier(search);
}

}  // namespace weft::workload
