// See fingerprint.h. Weisfeiler-Leman: every node's colour is refined by its neighbours' colours,
// until it reflects the whole graph around the node. The sorted colours identify the machine.
#include "src/topology/graph/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace weft {
namespace {

uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdu;
  return hash ^ (hash >> 33);
}

uint64_t mix(uint64_t hash, std::string_view text) {
  for (const char c : text) hash = mix(hash, static_cast<unsigned char>(c));
  return mix(hash, text.size());
}

// Files print fewer digits than doubles have.
uint64_t rounded(double value) { return static_cast<uint64_t>(std::llround(value * 1000)); }

uint64_t seed_of(const Node& node) {
  uint64_t hash = mix(1, static_cast<uint64_t>(node.type));
  hash = mix(mix(hash, rounded(node.gbps)), rounded(node.us));
  if (node.type == NodeType::kGpu)
    hash = mix(mix(mix(hash, fact(node, "sm")), fact(node, "p2p")), fact(node, "gdr"));
  return hash;
}

uint64_t label_of(const Link& link) {
  return mix(
      mix(mix(mix(7, static_cast<uint64_t>(link.type)), rounded(link.gbps)), rounded(link.us)),
      static_cast<uint64_t>(link.count));
}

}  // namespace

uint64_t fingerprint(const Machine& machine) {
  const size_t count = machine.nodes.size();
  std::vector<uint64_t> colour(count), next(count);
  for (size_t i = 0; i < count; i++) colour[i] = seed_of(machine.nodes[i]);
  size_t classes = 0;
  std::vector<uint64_t> sorted;
  for (size_t round = 0; round <= count; round++) {
    // Sums do not depend on the order of links.
    std::vector<uint64_t> in(count, 0), out(count, 0);
    for (const auto& link : machine.links) {
      out[link.from] += mix(label_of(link), colour[link.to]);
      in[link.to] += mix(label_of(link) + 1, colour[link.from]);
    }
    for (size_t i = 0; i < count; i++) next[i] = mix(mix(mix(3, colour[i]), out[i]), in[i]);
    colour.swap(next);
    sorted = colour;
    std::sort(sorted.begin(), sorted.end());
    const size_t distinct = std::unique(sorted.begin(), sorted.end()) - sorted.begin();
    if (round > 0 && distinct == classes) break;
    classes = distinct;
  }
  sorted = colour;
  std::sort(sorted.begin(), sorted.end());
  uint64_t hash = mix(mix(5, count), machine.links.size());
  for (const uint64_t each : sorted) hash = mix(hash, each);
  return hash;
}

std::string fingerprint_text(const Machine& machine) {
  return fmt::format("{:016x}", fingerprint(machine));
}

}  // namespace weft
