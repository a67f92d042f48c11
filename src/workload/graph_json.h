// Workloads as JSON files. Errors name the file, the line and the operation. Pure functions.
//
// {"name": "one layer", "source": "where the numbers come from", "ranks": 8, "sms": 132,
//  "comm_sms": 16, "split_us": 2, "batch": 4,
//  "groups": {"dp": [[0, 1, 2, 3], [4, 5, 6, 7]]},
//  "ops": [
//   {"id": "f0", "us": 120, "layer": 0, "phase": "fwd", "axis": "tokens"},
//   {"id": "ar0", "collective": "all_reduce", "bytes": 1048576, "group": "dp", "after": ["f0"]}]}
//
// Parts of a call, as passes make them, have "part", "parts" and "call_bytes".
// Also: "ranks" of compute (all without it), "stream", "microbatch", "priority", "sms", "root",
// "floor_us" (the least time of a part of compute), "context" (the share of its time that grows
// with what comes before on the axis, as attention does). Instead of "ops" there may be "training":
// see training.h.
#pragma once

#include <string>
#include <string_view>

#include "src/workload/graph.h"

namespace weft::workload {

// Throws Error(ncclInvalidArgument).
Graph graph_from_json(std::string_view text, const std::string& where);
std::string graph_to_json(const Graph& graph);

}  // namespace weft::workload
