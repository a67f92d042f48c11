// See routes.h.
#include "src/topology/graph/routes.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <set>
#include <tuple>

namespace weft {

Routes::Routes(const Machine& machine)
    : machine_(machine), gpus_(gpus(machine)), leaving_(machine.nodes.size()) {
  for (size_t l = 0; l < machine.links.size(); l++)
    if (machine.links[l].gbps > 0 && machine.links[l].from != machine.links[l].to)
      leaving_[static_cast<size_t>(machine.links[l].from)].push_back(static_cast<int32_t>(l));
  ranges_.resize(gpus_.size());
  find_twins();
}

void Routes::find_twins() {
  using Links = std::multiset<std::tuple<bool, int, double, double>>;
  std::map<int, Links> links;
  for (const Link& link : machine_.links)
    for (const bool leaves : {true, false}) {
      const int nic = leaves ? link.from : link.to;
      if (machine_.nodes[static_cast<size_t>(nic)].type == NodeType::kNic)
        links[nic].emplace(leaves, leaves ? link.to : link.from, link.gbps, link.us);
    }
  std::map<Links, std::vector<int>> alike;
  for (const auto& [nic, own] : links) alike[own].push_back(nic);
  for (const auto& [own, nics] : alike)
    if (nics.size() > 1)
      for (const int nic : nics) twins_[nic] = nics;
}

// How many GPUs before this one have a link to the same neighbour, or from it.
int Routes::turn_of(int gpu, int neighbour, bool sends) const {
  std::set<int> before;
  for (const Link& link : machine_.links) {
    const int end = sends ? link.from : link.to;
    if ((sends ? link.to : link.from) == neighbour && end < gpu &&
        machine_.nodes[static_cast<size_t>(end)].type == NodeType::kGpu)
      before.insert(end);
  }
  return static_cast<int>(before.size());
}

int32_t Routes::link_like(int32_t link, int from, int to) const {
  const Link& like = machine_.links[static_cast<size_t>(link)];
  for (const int32_t l : leaving_[static_cast<size_t>(from)]) {
    const Link& other = machine_.links[static_cast<size_t>(l)];
    if (other.to == to && other.gbps == like.gbps && other.us == like.us) return l;
  }
  return link;
}

// Exchanges the NICs of a route for those whose turn it is.
void Routes::spread(std::span<int32_t> route, int from, int to) const {
  if (twins_.empty()) return;
  const auto link = [&](size_t i) -> const Link& {
    return machine_.links[static_cast<size_t>(route[i])];
  };
  for (size_t i = 0; i + 1 < route.size(); i++) {
    const auto found = twins_.find(link(i).to);
    if (found == twins_.end()) continue;
    const bool sends = link(i + 1).type == LinkType::kNetwork;
    const int turn =
        sends ? turn_of(from, link(0).to, true) : turn_of(to, link(route.size() - 1).from, false);
    const std::vector<int>& nics = found->second;
    const int nic = nics[static_cast<size_t>(turn) % nics.size()];
    const int before = link(i).from, after = link(i + 1).to;
    route[i] = link_like(route[i], before, nic);
    route[i + 1] = link_like(route[i + 1], nic, after);
  }
}

std::span<const int32_t> Routes::between(int from, int to) {
  auto& ranges = ranges_[static_cast<size_t>(from)];
  if (ranges.empty()) search(from);
  const Range& range = ranges[static_cast<size_t>(to)];
  return {links_.data() + range.begin, range.size};
}

// Per node, the highest bandwidth of a route from the source.
std::vector<double> Routes::widths(int source) const {
  std::vector<double> width(machine_.nodes.size(), 0.0);
  std::priority_queue<std::pair<double, int>> queue;
  width[static_cast<size_t>(source)] = std::numeric_limits<double>::infinity();
  queue.push({width[static_cast<size_t>(source)], source});
  while (!queue.empty()) {
    const auto [wide, node] = queue.top();
    queue.pop();
    const auto n = static_cast<size_t>(node);
    if (wide < width[n] || (node != source && machine_.nodes[n].type == NodeType::kGpu)) continue;
    for (const int32_t l : leaving_[n]) {
      const Link& link = machine_.links[static_cast<size_t>(l)];
      const double through = std::min(wide, link.gbps);
      if (through <= width[static_cast<size_t>(link.to)]) continue;
      width[static_cast<size_t>(link.to)] = through;
      queue.push({through, link.to});
    }
  }
  return width;
}

// Per node, the last link of the fastest route over links of at least `width`; -1 if none.
std::vector<int32_t> Routes::fastest(int source, double width) const {
  using Reached = std::tuple<double, int, int32_t, int>;  // latency, hops, last link, node
  std::vector<std::tuple<double, int, int32_t>> best(
      machine_.nodes.size(), {std::numeric_limits<double>::infinity(), 0, -1});
  std::priority_queue<Reached, std::vector<Reached>, std::greater<>> queue;
  best[static_cast<size_t>(source)] = {0.0, 0, -1};
  queue.push({0.0, 0, -1, source});
  while (!queue.empty()) {
    const auto [us, hops, last, node] = queue.top();
    queue.pop();
    const auto n = static_cast<size_t>(node);
    if (best[n] < std::tuple(us, hops, last)) continue;
    if (node != source && machine_.nodes[n].type == NodeType::kGpu) continue;
    for (const int32_t l : leaving_[n]) {
      const Link& link = machine_.links[static_cast<size_t>(l)];
      const std::tuple candidate{us + link.us, hops + 1, l};
      if (link.gbps < width || link.to == source ||
          !(candidate < best[static_cast<size_t>(link.to)]))
        continue;
      best[static_cast<size_t>(link.to)] = candidate;
      queue.push({us + link.us, hops + 1, l, link.to});
    }
  }
  std::vector<int32_t> arrived_by;
  for (const auto& reached : best) arrived_by.push_back(std::get<2>(reached));
  return arrived_by;
}

void Routes::search(int from) {
  const int source = gpus_[static_cast<size_t>(from)];
  const std::vector<double> width = widths(source);
  auto& ranges = ranges_[static_cast<size_t>(from)];
  ranges.resize(gpus_.size());
  std::set<double> classes;
  for (const int gpu : gpus_)
    if (gpu != source && width[static_cast<size_t>(gpu)] > 0)
      classes.insert(width[static_cast<size_t>(gpu)]);
  for (const double wide : classes) {
    const std::vector<int32_t> arrived_by = fastest(source, wide);
    for (size_t to = 0; to < gpus_.size(); to++) {
      if (gpus_[to] == source || width[static_cast<size_t>(gpus_[to])] != wide) continue;
      const auto begin = static_cast<uint32_t>(links_.size());
      for (int node = gpus_[to]; node != source;) {
        const int32_t l = arrived_by[static_cast<size_t>(node)];
        links_.push_back(l);
        node = machine_.links[static_cast<size_t>(l)].from;
      }
      std::reverse(links_.begin() + begin, links_.end());
      spread({links_.begin() + begin, links_.end()}, source, gpus_[to]);
      ranges[to] = {begin, static_cast<uint32_t>(links_.size()) - begin};
    }
  }
}

}  // namespace weft
