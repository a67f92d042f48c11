// See graph.h.
#include "src/workload/graph.h"

#include <algorithm>
#include <map>

namespace weft::workload {

std::string_view name_of(Phase phase) {
  constexpr std::string_view kNames[kPhases] = {"fwd", "dX", "dW", "grad", "opt", "param", "extra"};
  return kNames[static_cast<size_t>(phase)];
}

int place_of(Graph& graph, const std::vector<int>& ranks) {
  const auto it = std::find(graph.places.begin(), graph.places.end(), ranks);
  if (it != graph.places.end()) return static_cast<int>(it - graph.places.begin());
  graph.places.push_back(ranks);
  return static_cast<int>(graph.places.size()) - 1;
}

int group_of(Graph& graph, const std::string& name, const Instances& instances) {
  for (size_t i = 0; i < graph.groups.size(); i++)
    if (graph.groups[i].instances == instances) return static_cast<int>(i);
  graph.groups.push_back({name, instances});
  return static_cast<int>(graph.groups.size()) - 1;
}

Actors actors_of(const Graph& graph) {
  const size_t places = graph.places.size(), groups = graph.groups.size();
  std::vector<std::vector<bool>> in(static_cast<size_t>(graph.nranks),
                                    std::vector<bool>(places + groups, false));
  for (size_t p = 0; p < places; p++)
    for (const int rank : graph.places[p]) in[static_cast<size_t>(rank)][p] = true;
  for (size_t g = 0; g < groups; g++)
    for (const auto& instance : graph.groups[g].instances)
      for (const int rank : instance) in[static_cast<size_t>(rank)][places + g] = true;
  Actors actors;
  actors.of_place.resize(places);
  actors.of_group.resize(groups);
  std::map<std::vector<bool>, size_t> known;
  for (int rank = 0; rank < graph.nranks; rank++) {
    const std::vector<bool>& mine = in[static_cast<size_t>(rank)];
    const auto [it, fresh] = known.emplace(mine, actors.ranks.size());
    if (fresh) {
      const auto number = static_cast<int>(actors.ranks.size());
      actors.ranks.emplace_back();
      for (size_t p = 0; p < places; p++)
        if (mine[p]) actors.of_place[p].push_back(number);
      for (size_t g = 0; g < groups; g++)
        if (mine[places + g]) actors.of_group[g].push_back(number);
    }
    actors.ranks[it->second].push_back(rank);
  }
  return actors;
}

void set_origins(Graph& graph) {
  for (size_t i = 0; i < graph.ops.size(); i++)
    graph.ops[i].shares = {{static_cast<int>(i), 0, 1, 0}};
}

}  // namespace weft::workload
