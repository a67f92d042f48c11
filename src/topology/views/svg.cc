// machine_svg() of view.h: one layer per kind of device, one host beside the other.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "src/topology/formats/xml.h"
#include "src/topology/views/palette.h"
#include "src/topology/views/view.h"

namespace weft {
namespace {

constexpr int kBox = 84, kGap = 14, kHeight = 34, kLayer = 92, kMargin = 24;

struct Style {
  const char *fill, *name;
};

Style style_of(NodeType type) {
  switch (type) {
    case NodeType::kGpu:
      return {"#dff0d0", "GPU"};
    case NodeType::kCpu:
      return {"#f6e3c5", "CPU"};
    case NodeType::kSwitch:
      return {"#e4e4ec", "switch"};
    case NodeType::kNic:
      return {"#d3e4f8", "NIC"};
  }
  return {"#ffffff", ""};
}

// From top to bottom: network, NICs, CPUs, PCIe switches, GPUs, NVSwitches.
int layer_of(const Node& node, bool nvswitch) {
  if (node.host < 0) return 0;
  if (node.type == NodeType::kNic) return 1;
  if (node.type == NodeType::kCpu) return 2;
  if (node.type == NodeType::kSwitch) return nvswitch ? 5 : 3;
  return 4;
}

}  // namespace

std::string machine_svg(const Machine& machine) {
  const size_t count = machine.nodes.size();
  std::vector<bool> fabric(count, false);
  for (const auto& link : machine.links)
    if (link.type == LinkType::kNvlink && machine.nodes[link.to].type == NodeType::kSwitch)
      fabric[link.to] = true;
  // Columns: each host is as wide as its fullest layer.
  std::map<int, std::map<int, std::vector<int>>> hosts;  // host, layer, nodes
  for (size_t i = 0; i < count; i++)
    hosts[machine.nodes[i].host][layer_of(machine.nodes[i], fabric[i])].push_back(
        static_cast<int>(i));
  std::vector<double> x(count), y(count);
  double left = kMargin;
  for (const auto& [host, layers] : hosts) {
    if (host < 0) continue;
    size_t widest = 1;
    for (const auto& [_, nodes] : layers) widest = std::max(widest, nodes.size());
    const double width = static_cast<double>(widest) * (kBox + kGap);
    for (const auto& [layer, nodes] : layers) {
      for (size_t k = 0; k < nodes.size(); k++) {
        x[nodes[k]] =
            left + width * (static_cast<double>(k) + 0.5) / static_cast<double>(nodes.size());
        y[nodes[k]] = kMargin + kLayer * layer + kHeight;
      }
    }
    left += width + 2 * kGap;
  }
  const double width = std::max(left, 300.0);
  if (const auto network = hosts.find(-1); network != hosts.end()) {
    const auto& nodes = network->second.begin()->second;
    for (size_t k = 0; k < nodes.size(); k++) {
      x[nodes[k]] = width * (static_cast<double>(k) + 0.5) / static_cast<double>(nodes.size());
      y[nodes[k]] = kMargin + kHeight;
    }
  }
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1}\" viewBox=\"0 0 "
      "{0:.0f} "
      "{1}\" font-family=\"sans-serif\" font-size=\"11\">\n<title>{2}</title>\n",
      width, kMargin * 2 + kLayer * 6, xml_escaped(machine.name));
  for (const auto& link : machine.links) {
    const bool twin =
        std::any_of(machine.links.begin(), machine.links.end(), [&](const Link& other) {
          return other.from == link.to && other.to == link.from && other.type == link.type;
        });
    if (twin && link.from > link.to) continue;
    // Links within a layer are bent, so that boxes between do not hide them.
    const double x1 = x[link.from], y1 = y[link.from], x2 = x[link.to], y2 = y[link.to];
    const double bend = y1 == y2 ? std::min(60.0, std::abs(x2 - x1) * 0.3) : 0;
    text += fmt::format(
        "<path d=\"M{:.1f} {:.1f} Q{:.1f} {:.1f} {:.1f} {:.1f}\" fill=\"none\" stroke=\"{}\" "
        "stroke-width=\"{:.1f}\" opacity=\"0.75\"><title>{} - {}: {} {:.4g} GB/s, {:.3g} "
        "us</title></path>\n",
        x1, y1, (x1 + x2) / 2, (y1 + y2) / 2 + bend, x2, y2, colour_of(link.type),
        std::clamp(std::log2(1 + link.gbps) / 2, 0.8, 5.0),
        xml_escaped(machine.nodes[link.from].id), xml_escaped(machine.nodes[link.to].id),
        name_of(link.type), link.gbps, link.us);
  }
  for (size_t i = 0; i < count; i++) {
    const Node& node = machine.nodes[i];
    const Style style = style_of(node.type);
    text += fmt::format(
        "<g><title>{} {} {}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" "
        "rx=\"5\" "
        "fill=\"{}\" stroke=\"#444\"/><text x=\"{:.1f}\" y=\"{:.1f}\" "
        "text-anchor=\"middle\">{}</text></g>\n",
        style.name, xml_escaped(node.model), xml_escaped(node.pci), x[i] - kBox / 2.0,
        y[i] - kHeight / 2.0, kBox, kHeight, style.fill, x[i], y[i] + 4, xml_escaped(node.id));
  }
  return text + "</svg>\n";
}

}  // namespace weft
