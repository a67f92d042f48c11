// broadcast_perf: every rank ends with the array of the root.
#include "perf/common/shapes.h"

namespace weft::perf {
namespace {

ncclResult_t run(const Call& c) {
  return ncclBroadcast(c.send, c.recv, c.count, c.type, c.root, c.comm, c.stream);
}

std::vector<Segment> expected(const Shape& shape, const Place& place) {
  return {{0, shape.recv, place.root, 0}};
}

}  // namespace

const Collective kCollective = {
    .program = "broadcast_perf",
    .rooted = true,
    .shape = shape_whole,
    .run = run,
    .expected = expected,
    .bus_factor = factor_one,
};

}  // namespace weft::perf
