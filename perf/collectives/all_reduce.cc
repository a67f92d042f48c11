// all_reduce_perf: every rank ends with the reduction of all arrays.
#include "perf/common/shapes.h"

namespace weft::perf {
namespace {

ncclResult_t run(const Call& c) {
  return ncclAllReduce(c.send, c.recv, c.count, c.type, c.op, c.comm, c.stream);
}

std::vector<Segment> expected(const Shape& shape, const Place&) {
  return {{0, shape.recv, kReduced, 0}};
}

double bus_factor(int nranks) { return 2.0 * (nranks - 1) / nranks; }

}  // namespace

const Collective kCollective = {
    .program = "all_reduce_perf",
    .reduces = true,
    .shape = shape_whole,
    .run = run,
    .expected = expected,
    .bus_factor = bus_factor,
};

}  // namespace weft::perf
