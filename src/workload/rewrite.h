// The ways in which passes change a graph. Each gives a new graph in which operations know what
// they stand for (Op::shares), so that check_rewritten() can compare. Pure functions.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/workload/graph.h"

namespace weft::workload {

// Cuts operations into parts. cuts[i]: where operation i is cut, ascending, between 0 and 1; empty:
// it stays whole. Parts of one axis wait for each other part by part.
struct Cutting {
  std::vector<std::vector<double>> cuts;
  // Operations of one block (a number from 0 on) run part by part: the first part of all of them,
  // then the second. -1: in no block; all parts of the operation, then the next operation.
  std::vector<int> blocks;
  bool one_call = true;  // parts of a collective are one call
  // Parts are slices of a sequence: each looks at what comes before it (Op::context). Otherwise
  // they are shares of a batch.
  bool causal = false;
};
Graph cut(const Graph& graph, const Cutting& cutting);
std::vector<double> equal_cuts(int parts);

// A collective as a sequence of others. `factor`: of the bytes.
struct StageCall {
  CollectiveKind kind;
  double factor = 1;
  int group = 0;
};
Graph substitute(const Graph& graph, const std::map<int, std::vector<StageCall>>& how);

// Collectives of the same kind and group become one call, where the last of them was.
Graph merge(const Graph& graph, const std::vector<std::vector<int>>& buckets);

// order[k]: which operation becomes number k.
Graph reorder(const Graph& graph, const std::vector<int>& order);

// Collectives that are `chosen` get the stream and are issued right after the last operation that
// they wait for; those that wait for nothing come first, in their old order. Parts of a call stay.
Graph hoist(const Graph& graph, const std::function<bool(const Op&)>& chosen,
            const std::string& stream, int priority);

// The groups of a group's ranks inside hosts, and across them; empty where that is no grid.
struct HostGrid {
  Instances inside, across;
};
HostGrid host_grid(const Instances& instances, const std::vector<int>& host_of_rank);

}  // namespace weft::workload
