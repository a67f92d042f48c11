// alltoall_perf: block d of rank s ends as block s of rank d.
#include "perf/common/shapes.h"

namespace weft::perf {
namespace {

ncclResult_t run(const Call& c) {
  return ncclAlltoAll(c.send, c.recv, c.count, c.type, c.comm, c.stream);
}

std::vector<Segment> expected(const Shape& shape, const Place& place) {
  std::vector<Segment> segments;
  for (int s = 0; s < place.nranks; ++s) {
    segments.push_back({block_start(shape, s), shape.param, s, block_start(shape, place.rank)});
  }
  return segments;
}

}  // namespace

const Collective kCollective = {
    .program = "alltoall_perf",
    .in_place_checked = false,
    .shape = shape_one_round,
    .run = run,
    .expected = expected,
    .bus_factor = factor_all_but_one,
};

}  // namespace weft::perf
