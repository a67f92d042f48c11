// gather_perf: the root ends with the blocks of all ranks, in rank order.
#include "perf/common/shapes.h"

namespace weft::perf {
namespace {

ncclResult_t run(const Call& c) {
  return ncclGather(c.send, c.recv, c.count, c.type, c.root, c.comm, c.stream);
}

std::vector<Segment> expected(const Shape& shape, const Place& place) {
  if (place.rank != place.root) return {};
  return expect_gathered(shape, place);
}

}  // namespace

const Collective kCollective = {
    .program = "gather_perf",
    .rooted = true,
    .shape = shape_gathering,
    .run = run,
    .expected = expected,
    .bus_factor = factor_all_but_one,
};

}  // namespace weft::perf
