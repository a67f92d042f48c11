// A collective in parts: each part is a call of its own, over the same share of every block.
#pragma once

#include <vector>

#include "src/comm/call.h"

namespace weft {

inline constexpr int kMostParts = 1024;

struct PartRange {
  size_t begin = 0, count = 0;  // elements of a block
};

// Part `part` of `parts` of a block of `count` elements of `element` bytes. Parts are contiguous
// and of one length, a multiple of 128 bytes. The last ones may be shorter or empty.
PartRange part_range(size_t count, size_t element, int parts, int part);

// The calls of all parts, in order. `ready` and `done` have a word for every part; nullptr: none.
std::vector<Call> parts_of(const Call& call, int parts, const uint32_t* ready, uint32_t* done);

}  // namespace weft
