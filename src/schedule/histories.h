// How values came about: inputs, sums in a given order, encodings. Two values with the same history
// have the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "src/schedule/codec.h"

namespace weft {

// `wide`: a sum that is not yet rounded to the call's type.
struct History {
  int32_t node = -1;
  bool wide = false;
};

// Only verify() uses it, from one thread. Equal histories get the same node.
class Histories {
 public:
  explicit Histories(const std::vector<CodecSpec>& codecs) : codecs_(codecs) {}

  History input(int rank, int32_t piece);
  // The sum of sources[c], sources[c + stride] and so on, in this order.
  History sum(const std::vector<History>& sources, size_t c, size_t stride);
  // `codec`: as in Operand.
  History coded(const History& history, uint8_t codec);

  bool is_input(const History& history) const {
    return nodes_[static_cast<size_t>(history.node)].input;
  }
  // The most lossy encodings on the way of an input to this value.
  int passes(const History& history) const {
    return nodes_[static_cast<size_t>(history.node)].passes;
  }
  size_t bytes() const { return bytes_; }

 private:
  struct Node {
    bool input = false;
    int32_t passes = 0;
  };
  int32_t intern(std::vector<int64_t> key, Node node);

  const std::vector<CodecSpec>& codecs_;
  std::vector<Node> nodes_;
  std::map<std::vector<int64_t>, int32_t> numbers_;
  size_t bytes_ = 0;
};

}  // namespace weft
