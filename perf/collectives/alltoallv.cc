// alltoallv_perf: all-to-all with uneven blocks, made of sends and receives in one group.
#include "perf/common/shapes.h"

namespace weft::perf {
namespace {

// Elements from rank a to rank b. Half or one and a half times the mean block, in pairs, so that
// every rank still sends and receives the whole array. Symmetric in a and b.
size_t block_between(size_t mean, int a, int b, int nranks) {
  const int k = (a + b) % nranks;
  const bool unpaired = k == nranks - 1 && nranks % 2 == 1;
  if (unpaired) return mean;
  return k % 2 == 0 ? mean + mean / 2 : mean - mean / 2;
}

// Where the block to (or from) `peer` begins in the packed array of `rank`.
size_t block_offset(size_t mean, int rank, int peer, int nranks) {
  size_t offset = 0;
  for (int p = 0; p < peer; ++p) offset += block_between(mean, rank, p, nranks);
  return offset;
}

ncclResult_t run(const Call& c) {
  Group group;
  size_t offset = 0;
  for (int peer = 0; peer < c.nranks; ++peer) {
    const size_t count = block_between(c.count, c.rank, peer, c.nranks);
    group.add(
        ncclSend(element(c.send, offset, c.type_size), count, c.type, peer, c.comm, c.stream));
    group.add(
        ncclRecv(element(c.recv, offset, c.type_size), count, c.type, peer, c.comm, c.stream));
    offset += count;
  }
  return group.finish();
}

std::vector<Segment> expected(const Shape& shape, const Place& place) {
  std::vector<Segment> segments;
  for (int s = 0; s < place.nranks; ++s) {
    segments.push_back({block_offset(shape.param, place.rank, s, place.nranks),
                        block_between(shape.param, s, place.rank, place.nranks), s,
                        block_offset(shape.param, s, place.rank, place.nranks)});
  }
  return segments;
}

}  // namespace

const Collective kCollective = {
    .program = "alltoallv_perf",
    .in_place_checked = false,
    .shape = shape_one_round,
    .run = run,
    .expected = expected,
    .bus_factor = factor_all_but_one,
};

}  // namespace weft::perf
