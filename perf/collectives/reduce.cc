// reduce_perf: the root ends with the reduction of all arrays.
#include "perf/common/shapes.h"

namespace weft::perf {
namespace {

ncclResult_t run(const Call& c) {
  return ncclReduce(c.send, c.recv, c.count, c.type, c.op, c.root, c.comm, c.stream);
}

std::vector<Segment> expected(const Shape& shape, const Place& place) {
  if (place.rank != place.root) return {};
  return {{0, shape.recv, kReduced, 0}};
}

}  // namespace

const Collective kCollective = {
    .program = "reduce_perf",
    .reduces = true,
    .rooted = true,
    .shape = shape_whole,
    .run = run,
    .expected = expected,
    .bus_factor = factor_one,
};

}  // namespace weft::perf
