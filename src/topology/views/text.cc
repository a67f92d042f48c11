// machine_text() of view.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "src/topology/graph/fingerprint.h"
#include "src/topology/graph/paths.h"
#include "src/topology/graph/pipeline.h"
#include "src/topology/views/view.h"

namespace weft {
namespace {

constexpr size_t kWidestMatrix = 36;

// Measurements are no more exact than three digits.
std::string rate(double gbps) {
  return gbps >= 100 ? fmt::format("{:.0f}", gbps) : fmt::format("{:.3g}", gbps);
}

std::string plural(size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

class Text {
 public:
  explicit Text(const Machine& machine) : machine_(machine), shown_(machine.nodes.size(), false) {}

  std::string run() {
    text_ = fmt::format(
        "{}: {}, {}, {}, fingerprint {}\n", machine_.name.empty() ? "machine" : machine_.name,
        plural(static_cast<size_t>(count_hosts(machine_)), "host"),
        plural(gpus(machine_).size(), "GPU"),
        plural(nodes_of(machine_, NodeType::kNic).size(), "NIC"), fingerprint_text(machine_));
    hosts();
    matrix();
    affinity();
    if (!machine_.notes.empty()) text_ += "notes\n";
    for (const auto& note : machine_.notes) text_ += fmt::format("  - {}\n", note);
    return std::move(text_);
  }

 private:
  void hosts() {
    std::set<int> numbers;
    for (const auto& node : machine_.nodes) numbers.insert(node.host);
    // Equal hosts appear once.
    std::vector<std::pair<std::string, std::vector<int>>> seen;
    for (const int host : numbers) {
      if (host < 0) continue;
      std::string tree;
      std::swap(tree, text_);
      host_tree(host);
      std::swap(tree, text_);
      const std::string shape = shape_of(tree);
      const auto same = std::find_if(seen.begin(), seen.end(),
                                     [&](const auto& other) { return other.first == shape; });
      if (same != seen.end()) {
        same->second.push_back(host);
        continue;
      }
      seen.push_back({shape, {host}});
      text_ += fmt::format("host {}\n{}", host, tree);
    }
    for (const auto& [_, same] : seen)
      if (same.size() > 1)
        text_ += fmt::format("hosts like host {}: {} more\n", same[0], same.size() - 1);
    if (numbers.count(-1) > 0) {
      text_ += "network\n";
      for (size_t i = 0; i < machine_.nodes.size(); i++)
        if (machine_.nodes[i].host < 0) network_switch(static_cast<int>(i));
    }
  }

  // The tree without names: ids become numbers in order of appearance, bus ids are left out.
  std::string shape_of(const std::string& tree) const {
    std::string shape;
    std::map<std::string, size_t> order;
    std::istringstream words(tree);
    for (std::string word; words >> word;) {
      if (const int node = find_node(machine_, word); node >= 0)
        word = fmt::format("#{}", order.emplace(word, order.size()).first->second);
      else if (std::count(word.begin(), word.end(), ':') == 2)
        continue;
      shape += word + " ";
    }
    return shape;
  }

  void network_switch(int node) {
    size_t nics = 0, fabric = 0;
    double gbps = 0;
    text_ += fmt::format("  {}", machine_.nodes[node].id);
    std::string up;
    for (const auto& link : machine_.links) {
      if (link.from != node) continue;
      if (machine_.nodes[link.to].type == NodeType::kNic) {
        nics++;
        gbps += link.gbps;
      } else if (machine_.nodes[link.to].type == NodeType::kGpu) {
        fabric++;
      } else {
        up += fmt::format(", {} GB/s to {}", rate(link.gbps), machine_.nodes[link.to].id);
      }
    }
    if (fabric > 0)
      text_ += fmt::format(": {} joins {}\n", machine_.nodes[node].model, plural(fabric, "GPU"));
    else
      text_ += fmt::format(": {} of {} GB/s together{}\n", plural(nics, "NIC"), rate(gbps), up);
  }

  void host_tree(int host) {
    for (size_t i = 0; i < machine_.nodes.size(); i++)
      if (machine_.nodes[i].host == host && machine_.nodes[i].type == NodeType::kCpu)
        node_line(static_cast<int>(i), 0, 1);
    // Models without CPUs: the remaining nodes, GPUs before NICs.
    for (size_t i = 0; i < machine_.nodes.size(); i++)
      if (machine_.nodes[i].host == host && !shown_[i]) node_line(static_cast<int>(i), 0, 1);
  }

  void node_line(int index, double gbps, int indent) {
    if (shown_[index]) return;
    shown_[index] = true;
    const Node& node = machine_.nodes[index];
    std::string line = std::string(static_cast<size_t>(indent) * 2, ' ') + node.id;
    if (!node.model.empty()) line += "  " + node.model;
    if (!node.pci.empty()) line += "  " + node.pci;
    if (gbps > 0) line += fmt::format("  PCIe {} GB/s", rate(gbps));
    if (node.type == NodeType::kNic) line += fmt::format("  network {} GB/s", rate(node.gbps));
    if (fact(node, "p2p") == "0") line += "  no P2P";
    size_t fabric = 0;
    for (const auto& link : machine_.links) {
      if (link.from != index || link.type == LinkType::kPcie || link.type == LinkType::kNetwork)
        continue;
      if (node.type != NodeType::kSwitch)
        line += fmt::format("  {}", other_link(link));
      else
        fabric++;
    }
    if (fabric > 0) line += fmt::format("  joins {}", plural(fabric, "GPU"));
    if (node.type == NodeType::kNic && gbps == 0) line += reached_from(index);
    text_ += line + "\n";
    for (const auto& link : machine_.links) {
      const Node& below = machine_.nodes[link.to];
      if (link.from != index || link.type != LinkType::kPcie || below.type == NodeType::kCpu)
        continue;
      if (node.type == NodeType::kCpu || node.type == NodeType::kSwitch)
        node_line(link.to, link.gbps, indent + 1);
    }
  }

  std::string other_link(const Link& link) const {
    const char* kind = link.type == LinkType::kNvlink   ? "NVLink"
                       : link.type == LinkType::kXgmi   ? "xGMI"
                       : link.type == LinkType::kC2c    ? "C2C"
                       : link.type == LinkType::kSocket ? "socket link"
                                                        : "link";
    const std::string count = link.count > 1 ? fmt::format(" x{}", link.count) : "";
    return fmt::format("{}{} {} GB/s to {}", kind, count, rate(link.gbps),
                       machine_.nodes[link.to].id);
  }

  std::string reached_from(int nic) const {
    std::string text;
    for (const auto& link : machine_.links)
      if (link.to == nic && link.type == LinkType::kPcie)
        text += fmt::format("{}{}", text.empty() ? "  from " : " ", machine_.nodes[link.from].id);
    return text;
  }

  std::string cell(int a, int b) const {
    const Path path = finder_.best(a, b);
    std::string code;
    switch (path.path_class) {
      case PathClass::kSelf:
        return "X";
      case PathClass::kNvlink:
        code = fmt::format("NV{}", machine_.links[path.links[0]].count);
        break;
      case PathClass::kNvlinkRelay:
        code = "NV+";
        break;
      case PathClass::kPcieSwitch:
        code = "PIX";
        break;
      case PathClass::kHostBridge:
        code = "PHB";
        break;
      case PathClass::kSockets:
        code = "SYS";
        break;
      case PathClass::kNetwork:
        code = "NET";
        break;
      case PathClass::kNone:
        return "-";
    }
    return fmt::format("{} {}", code, rate(path.gbps));
  }

  void matrix() {
    const auto all = gpus(machine_);
    if (all.size() < 2) return;
    if (all.size() > kWidestMatrix) {
      text_ += fmt::format("{} GPUs are too many for a matrix\n", all.size());
      return;
    }
    text_ += "GB/s from GPU (row) to GPU\n";
    std::vector<std::vector<std::string>> rows(all.size() + 1);
    rows[0].emplace_back("");
    for (const int b : all) rows[0].push_back(machine_.nodes[b].id);
    for (size_t a = 0; a < all.size(); a++) {
      rows[a + 1].push_back(machine_.nodes[all[a]].id);
      for (const int b : all) rows[a + 1].push_back(cell(all[a], b));
    }
    std::vector<size_t> widths(all.size() + 1, 0);
    for (const auto& row : rows)
      for (size_t i = 0; i < row.size(); i++) widths[i] = std::max(widths[i], row[i].size());
    for (const auto& row : rows) {
      std::string line = " ";
      for (size_t i = 0; i < row.size(); i++) line += fmt::format(" {:<{}}", row[i], widths[i]);
      line.erase(line.find_last_not_of(' ') + 1);
      text_ += line + "\n";
    }
    text_ +=
        "  NVn: n NVLinks or xGMI links, NV+: through a relay GPU, PIX: PCIe switch, PHB: host "
        "bridge, SYS: across sockets, NET: network\n";
  }

  void affinity() {
    const auto choices = nic_affinity(machine_);
    if (choices.empty() || nodes_of(machine_, NodeType::kNic).empty()) return;
    if (choices.size() > kWidestMatrix) return;
    text_ += "NIC of each GPU\n";
    for (const auto& choice : choices) {
      const std::string& gpu = machine_.nodes[choice.gpu].id;
      if (choice.nic < 0) {
        text_ += fmt::format("  {}: none can be reached\n", gpu);
        continue;
      }
      std::string nics = machine_.nodes[choice.nic].id;
      for (const int more : choice.more) nics += " + " + machine_.nodes[more].id;
      text_ += fmt::format("  {}: {} ({}, {} GB/s)", gpu, nics, name_of(choice.direct.path_class),
                           rate(choice.direct.gbps));
      if (choice.relay >= 0)
        text_ += fmt::format("; through {}'s NVLink {} GB/s, {:+.1f} us",
                             machine_.nodes[choice.relay].id, rate(choice.relayed.gbps),
                             choice.relayed.us - choice.direct.us);
      text_ += "\n";
    }
    text_ += "pipeline order:";
    for (const int gpu : pipeline_order(machine_)) text_ += " " + machine_.nodes[gpu].id;
    text_ += "\n";
  }

  const Machine& machine_;
  const PathFinder finder_{machine_};
  std::vector<bool> shown_;
  std::string text_;
};

}  // namespace

std::string machine_text(const Machine& machine) { return Text(machine).run(); }

}  // namespace weft
