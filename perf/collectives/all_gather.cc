// all_gather_perf: every rank ends with the blocks of all ranks, in rank order.
#include "perf/common/shapes.h"

namespace weft::perf {
namespace {

ncclResult_t run(const Call& c) {
  return ncclAllGather(c.send, c.recv, c.count, c.type, c.comm, c.stream);
}

}  // namespace

const Collective kCollective = {
    .program = "all_gather_perf",
    .shape = shape_gathering,
    .run = run,
    .expected = expect_gathered,
    .bus_factor = factor_all_but_one,
};

}  // namespace weft::perf
