// Reads a Chakra execution trace in protobuf: messages with their length in front, the first is
// about the trace, the others are nodes. Gives the nodes as the JSON that chakra_jsonizer writes,
// as far as import.h needs it. A pure function; errors are Error, one line.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace weft::workload {

nlohmann::json chakra_nodes(std::string_view bytes, const std::string& where);

}  // namespace weft::workload
