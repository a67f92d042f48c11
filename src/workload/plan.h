// A plan of calls: what a rank issues, in order, to get a timeline. perf/overlap runs it on GPUs.
// Pure functions.
//
// {"plan": 1, "name": ..., "ranks": 4, "predicted_us": 812.5,
//  "communicators": [{"name": "dp@grad", "priority": 0, "ranks": [[0, 1, 2, 3]]}],
//  "calls": [
//   {"op": "f0", "stream": "compute", "us": 120, "begin_us": 0, "end_us": 120},
//   {"op": "g0", "stream": "grad", "kind": "all_reduce", "communicator": 0, "offset": 0,
//    "bytes": 1048576, "part": 0, "parts": 1, "call": 0, "after": [0], ...}]}
//
// A communicator is a group on a stream. `offset` is where the part begins in the array of its
// call; calls of one collective in parts share a number (`call`). `after` has numbers of calls.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/workload/graph.h"
#include "src/workload/timeline.h"

namespace weft::workload {

struct PlannedCall {
  std::string op, stream;
  std::vector<int> after;
  std::vector<int> ranks;  // of compute; empty: all
  double us = 0;           // of compute
  std::optional<CollectiveKind> kind;
  int communicator = -1, call = -1, part = 0, parts = 1, root = 0;
  double offset = 0, bytes = 0;
  double begin_us = 0, end_us = 0;  // predicted, on the rank that is last
};

struct Communicator {
  std::string name;
  int priority = 0;
  Instances ranks;
};

struct Plan {
  std::string name;
  int nranks = 1;
  double predicted_us = 0, predicted_exposed_us = 0;
  std::vector<Communicator> communicators;
  std::vector<PlannedCall> calls;
};

Plan plan_of(const Graph& graph, const Timeline& timeline);
// The plan as a workload again: operation i is call i.
Graph graph_of(const Plan& plan);
std::string plan_to_json(const Plan& plan);
// Throws Error(ncclInvalidArgument) also if calls wait for later ones.
Plan plan_from_json(std::string_view text, const std::string& where);

}  // namespace weft::workload
