// Small workloads for tests.
#pragma once

#include <string>

#include "src/workload/graph.h"
#include "src/workload/graph_json.h"

namespace weft::workload {

// A file around operations: `ranks` ranks in one group "all".
inline std::string file_of(int ranks, const std::string& ops, const std::string& more = "") {
  std::string all;
  for (int r = 0; r < ranks; r++) all += (r > 0 ? ", " : "") + std::to_string(r);
  return "{\"ranks\": " + std::to_string(ranks) + ", " + more + " \"groups\": {\"all\": [" + all +
         "]},\n \"ops\": [\n" + ops + "]}";
}

inline Graph graph_with(int ranks, const std::string& ops, const std::string& more = "") {
  return graph_from_json(file_of(ranks, ops, more), "test.json");
}

inline int op_named(const Graph& graph, const std::string& id) {
  for (size_t i = 0; i < graph.ops.size(); i++)
    if (graph.ops[i].id == id) return static_cast<int>(i);
  return -1;
}

}  // namespace weft::workload
