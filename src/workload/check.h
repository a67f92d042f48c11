// Whether a graph is a workload, and whether a rewritten graph does what the original does. Pure
// functions; they throw Error with one line that names the operation.
#pragma once

#include <string>

#include "src/workload/graph.h"

namespace weft::workload {

// No circle of dependencies, no dependency between operations without a common rank. `where`: the
// file, for the text of errors.
void check_graph(const Graph& graph, const std::string& where);

// - Bytes and compute are conserved: at every stage, the shares of an operation make up the whole.
// - Dependencies are kept: what waited for an operation waits for all that became of it, or part
//   for part where both were cut along the same axis.
// - Every group is called in the same order by all of its ranks. No operations wait for each other
//   in a circle, also counting the order of streams.
void check_rewritten(const Graph& original, const Graph& rewritten);

// An order of operations in which each comes after what it waits for, streams included. Throws if
// there is none.
std::vector<int> order_of(const Graph& graph, const std::string& where);

}  // namespace weft::workload
