// Writes the pattern into device buffers and counts wrong elements.
#pragma once

#include <cstddef>

#include "perf/common/patterns.h"

namespace weft::perf {

// Bytes after every buffer that no call may touch.
inline constexpr size_t kGuardBytes = 256;

// Elements first, first + 1, ... of a repeating tile.
struct Slice {
  Tile tile;
  size_t first;
  size_t count;
};

void write_slice(std::byte* device, const Slice& slice, ncclDataType_t type);
size_t count_wrong(const std::byte* device, const Slice& slice, ncclDataType_t type,
                   double tolerance);

void poison(std::byte* device, size_t bytes);
// The number of bytes that differ from what poison() wrote.
size_t count_touched(const std::byte* device, size_t bytes);

}  // namespace weft::perf
