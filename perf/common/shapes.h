// Shapes and outputs that several collectives share.
#pragma once

#include "perf/common/collective.h"

namespace weft::perf {

inline double factor_one(int) { return 1.0; }
inline double factor_all_but_one(int nranks) { return (nranks - 1.0) / nranks; }

// Every rank sends and receives the whole array.
inline Shape shape_whole(size_t count, int) { return {count, count, count}; }

// Sends a block and receives the whole array.
inline Shape shape_gathering(size_t count, int nranks) {
  const size_t block = count / static_cast<size_t>(nranks);
  return {block, block, block * static_cast<size_t>(nranks), block, 0};
}

// Sends the whole array and receives a block.
inline Shape shape_scattering(size_t count, int nranks) {
  const size_t block = count / static_cast<size_t>(nranks);
  return {block, block * static_cast<size_t>(nranks), block, 0, block};
}

// Sends a block to every rank and receives a block from every rank.
inline Shape shape_one_round(size_t count, int nranks) {
  const size_t block = count / static_cast<size_t>(nranks);
  const size_t whole = block * static_cast<size_t>(nranks);
  return {block, whole, whole};
}

inline size_t block_start(const Shape& shape, int rank) {
  return static_cast<size_t>(rank) * shape.param;
}

// The inputs of all ranks in rank order, one block each.
inline std::vector<Segment> expect_gathered(const Shape& shape, const Place& place) {
  std::vector<Segment> segments;
  for (int s = 0; s < place.nranks; ++s) {
    segments.push_back({block_start(shape, s), shape.param, s, 0});
  }
  return segments;
}

}  // namespace weft::perf
