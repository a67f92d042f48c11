// The Machine as JSON, the exchange format of every tool:
//   {"name": "two boxes",
//    "nodes": [{"id": "g0", "type": "gpu", "host": 0}, ...],
//    "links": [{"from": "g0", "to": "nvs0", "type": "nvlink", "gbps": 450.0, "us": 0.35}, ...]}
// Beyond these: nodes may have model, pci, numa, facts and (NICs) gbps and us; links may have count
// and "both": true, which stands for a second link back; the machine may have notes.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "src/topology/graph/machine.h"

namespace weft {

// Throws Error with one line that names `where` and the element.
Machine machine_from_json(std::string_view text, const std::string& where);

// One line per node and link. Equal links in both directions become one line with "both".
// machine_from_json() reads back an equal Machine, up to the order of links.
std::string machine_to_json(const Machine& machine);

// A string in JSON, with quotes.
std::string json_quoted(const std::string& text);

// A cluster is {"hosts": [NAME or {"machine": NAME, "count": N}, ...], "network": {...}}
// (network.h). `resolve` turns each NAME into a Machine.
using Resolve = std::function<Machine(const std::string& name)>;
bool is_cluster_json(std::string_view text);
Machine cluster_from_json(std::string_view text, const std::string& where, const Resolve& resolve);

}  // namespace weft
