// See histories.h.
#include "src/schedule/histories.h"

#include <algorithm>

namespace weft {
namespace {

enum : int64_t { kInput, kSum, kCoded };  // how keys begin

}  // namespace

int32_t Histories::intern(std::vector<int64_t> key, Node node) {
  const size_t size = key.size() * sizeof(int64_t) + sizeof(Node) + 64;
  const auto [it, added] =
      numbers_.try_emplace(std::move(key), static_cast<int32_t>(nodes_.size()));
  if (added) {
    nodes_.push_back(node);
    bytes_ += size;
  }
  return it->second;
}

History Histories::input(int rank, int32_t piece) {
  return {intern({kInput, rank, piece}, {true, 0}), false};
}

History Histories::sum(const std::vector<History>& sources, size_t c, size_t stride) {
  std::vector<int64_t> key = {kSum};
  Node node;
  for (size_t i = c; i < sources.size(); i += stride) {
    key.push_back(int64_t{sources[i].node} * 2 + (sources[i].wide ? 1 : 0));
    node.passes = std::max(node.passes, passes(sources[i]));
  }
  return {intern(std::move(key), node), true};
}

History Histories::coded(const History& history, uint8_t codec) {
  const CodecSpec& spec = codecs_[codec - 1u];
  if (spec.kind == Codec::kWiden) return history;
  return {intern({kCoded, history.node, codec}, {false, passes(history) + 1}), false};
}

}  // namespace weft
