// sendrecv_perf: a ring; every rank sends its array to the next rank.
#include "perf/common/shapes.h"

namespace weft::perf {
namespace {

int previous(int rank, int nranks) { return (rank + nranks - 1) % nranks; }

ncclResult_t run(const Call& c) {
  Group group;
  group.add(ncclSend(c.send, c.count, c.type, (c.rank + 1) % c.nranks, c.comm, c.stream));
  group.add(ncclRecv(c.recv, c.count, c.type, previous(c.rank, c.nranks), c.comm, c.stream));
  return group.finish();
}

std::vector<Segment> expected(const Shape& shape, const Place& place) {
  return {{0, shape.recv, previous(place.rank, place.nranks), 0}};
}

}  // namespace

const Collective kCollective = {
    .program = "sendrecv_perf",
    .in_place_checked = false,
    .shape = shape_whole,
    .run = run,
    .expected = expected,
    .bus_factor = factor_one,
};

}  // namespace weft::perf
