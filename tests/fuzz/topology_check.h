// The rule for every reader of machines, with any input: it gives a graph that can be written and
// queried, or an Error of one line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "src/base/error.h"
#include "src/topology/formats/machine_json.h"
#include "src/topology/formats/nccl_xml.h"
#include "src/topology/graph/fingerprint.h"
#include "src/topology/graph/flow_graph.h"

namespace weft::test {

inline void require(bool holds) {
  if (!holds) std::abort();
}

inline void check_machine(const Machine& machine) {
  const int count = static_cast<int>(machine.nodes.size());
  for (const auto& link : machine.links) {
    require(link.from >= 0 && link.from < count && link.to >= 0 && link.to < count);
    require(link.from != link.to && link.gbps > 0 && link.us >= 0 && link.count > 0);
  }
  require(flow_graph(machine).machine.links.size() == machine.links.size());
  fingerprint(machine);
  if (count_hosts(machine) <= 1) machine_to_nccl_xml(machine);
  // Ids that are not UTF-8 change when written. Their number does not.
  try {
    require(machine_from_json(machine_to_json(machine), "again").nodes.size() ==
            machine.nodes.size());
  } catch (const Error&) {
    // Two such ids may have become equal.
  }
}

template <typename Read>
int check_reader(const uint8_t* data, size_t size, Read read) {
  try {
    check_machine(read(std::string_view(reinterpret_cast<const char*>(data), size)));
  } catch (const Error& error) {
    const std::string text = error.what();
    require(!text.empty() && text.find('\n') == std::string::npos);
  }
  return 0;
}

}  // namespace weft::test
