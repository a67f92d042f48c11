// reduce_scatter_perf: rank r ends with block r of the reduction of all arrays.
#include "perf/common/shapes.h"

namespace weft::perf {
namespace {

ncclResult_t run(const Call& c) {
  return ncclReduceScatter(c.send, c.recv, c.count, c.type, c.op, c.comm, c.stream);
}

std::vector<Segment> expected(const Shape& shape, const Place& place) {
  return {{0, shape.param, kReduced, block_start(shape, place.rank)}};
}

}  // namespace

const Collective kCollective = {
    .program = "reduce_scatter_perf",
    .reduces = true,
    .shape = shape_scattering,
    .run = run,
    .expected = expected,
    .bus_factor = factor_all_but_one,
};

}  // namespace weft::perf
