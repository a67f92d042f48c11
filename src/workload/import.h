// Workloads from other tools: a PyTorch profiler trace (Kineto's JSON) and a Chakra execution trace
// (protobuf, or the JSON that chakra_jsonizer writes). Errors are Error, one
// line. Pure functions except load_graph(), which reads a file.
#pragma once

#include <string>
#include <string_view>

#include "src/workload/graph.h"

namespace weft::workload {

// What a profiler saw of one rank: kernels of one step. Collectives keep their measured times. All
// ranks are taken to do the same.
struct SeenTrace {
  Graph graph;
  double us = 0, exposed_us = 0;  // as the trace shows them: communication without compute
  int kernels = 0, collectives = 0;
};
SeenTrace graph_from_kineto(std::string_view text, const std::string& where);

// `ranks`: how many there are at least. Collectives are of all ranks.
Graph graph_from_chakra(std::string_view text, const std::string& where, int ranks = 1);

// Any of the three, told apart by content. `about` gets a line on what was imported.
Graph load_graph(const std::string& path, std::string& about, int ranks = 1);

}  // namespace weft::workload
