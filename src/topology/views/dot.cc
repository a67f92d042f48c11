// machine_dot() of view.h.
#include <fmt/format.h>

#include <set>

#include "src/topology/views/palette.h"
#include "src/topology/views/view.h"

namespace weft {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + "\"";
}

const char* shape_of(NodeType type) {
  switch (type) {
    case NodeType::kGpu:
      return "box";
    case NodeType::kCpu:
      return "component";
    case NodeType::kSwitch:
      return "diamond";
    case NodeType::kNic:
      return "cds";
  }
  return "box";
}

}  // namespace

std::string machine_dot(const Machine& machine) {
  std::string text = fmt::format("digraph {} {{\n  rankdir=TB;\n", quoted(machine.name));
  std::set<int> hosts;
  for (const auto& node : machine.nodes) hosts.insert(node.host);
  for (const int host : hosts) {
    if (host >= 0)
      text += fmt::format("  subgraph cluster_{} {{\n    label=\"host {}\";\n", host, host);
    for (const auto& node : machine.nodes) {
      if (node.host != host) continue;
      const std::string label = node.model.empty() ? node.id : node.id + " " + node.model;
      text += fmt::format("    {} [label={}, shape={}];\n", quoted(node.id), quoted(label),
                          shape_of(node.type));
    }
    if (host >= 0) text += "  }\n";
  }
  // A pair of equal links becomes one line with two arrowheads.
  for (size_t i = 0; i < machine.links.size(); i++) {
    const Link& link = machine.links[i];
    Link back = link;
    std::swap(back.from, back.to);
    const bool both = i + 1 < machine.links.size() && machine.links[i + 1] == back;
    text += fmt::format("  {} -> {} [label=\"{:.4g}\", color=\"{}\"{}];\n",
                        quoted(machine.nodes[link.from].id), quoted(machine.nodes[link.to].id),
                        link.gbps, colour_of(link.type), both ? ", dir=both" : "");
    if (both) i++;
  }
  return text + "}\n";
}

}  // namespace weft
