// hypercube_perf: all-gather by pairwise exchange along each dimension of a hypercube.
#include <bit>

#include "perf/common/shapes.h"

namespace weft::perf {
namespace {

// Before the phase of dimension `bit`, a rank holds the aligned run of `bit` blocks around it.
std::byte* held_by(const Call& c, int rank, int bit) {
  return element(c.recv, static_cast<size_t>(rank & ~(bit - 1)) * c.count, c.type_size);
}

ncclResult_t run(const Call& c) {
  Group group;
  std::byte* own = held_by(c, c.rank, 1);
  if (c.phase == 0) {
    if (c.send != own) {
      group.add(ncclSend(c.send, c.count, c.type, c.rank, c.comm, c.stream));
      group.add(ncclRecv(own, c.count, c.type, c.rank, c.comm, c.stream));
    }
    return group.finish();
  }
  const int bit = 1 << (c.phase - 1);
  const int peer = c.rank ^ bit;
  const size_t count = c.count * static_cast<size_t>(bit);
  group.add(ncclSend(held_by(c, c.rank, bit), count, c.type, peer, c.comm, c.stream));
  group.add(ncclRecv(held_by(c, peer, bit), count, c.type, peer, c.comm, c.stream));
  return group.finish();
}

// A rank receives everything but its own block.
size_t algorithm_elements(const Shape& shape, int nranks) {
  return shape.param * static_cast<size_t>(nranks - 1);
}

int phases(int nranks) { return std::bit_width(static_cast<unsigned>(nranks)); }

const char* refuses(int nranks) {
  return std::has_single_bit(static_cast<unsigned>(nranks))
             ? nullptr
             : "a hypercube needs a power of two of ranks";
}

}  // namespace

const Collective kCollective = {
    .program = "hypercube_perf",
    .shape = shape_gathering,
    .run = run,
    .expected = expect_gathered,
    .bus_factor = factor_one,
    .algorithm_elements = algorithm_elements,
    .phases = phases,
    .refuses = refuses,
};

}  // namespace weft::perf
