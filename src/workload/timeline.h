// When every operation of a workload runs on a machine. A discrete simulation: operations begin
// when their stream has come to them and what they wait for has ended. Collectives that run at the
// same time share links, max-min fair, those of higher priority first. Compute is slowed by the
// multiprocessors that collectives of its rank take. A pure function.
#pragma once

#include <map>
#include <vector>

#include "src/workload/comm_cost.h"
#include "src/workload/graph.h"

namespace weft::workload {

// An operation at work. A collective has one span for all its ranks; compute one per actor.
struct Span {
  int op = 0;
  int actor = -1;  // -1: those of the operation's group
  double begin_us = 0, end_us = 0;
  int cause = -1;  // the span that it waited for last; -1: none
};

struct Timeline {
  double us = 0;
  // Means over ranks. Exposed: something is communicated and nothing computed.
  double compute_us = 0, comm_us = 0, exposed_us = 0;
  std::map<CollectiveKind, double> exposed_by_kind, alone_by_kind;
  std::vector<Span> spans;                           // in order of their begin
  std::vector<int> critical;                         // spans; each waited for the one before it
  std::vector<std::pair<int, double>> link_busy_us;  // busiest first
  Actors actors;
};

// Throws Error if the operations wait for each other in a circle.
Timeline run(const Graph& graph, CommCosts& costs);

}  // namespace weft::workload
