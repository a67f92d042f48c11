// See collectives.h.
#include "perf/rankperf/collectives.h"

#include "perf/common/errors.h"

namespace weft::perf::rankperf {
namespace {

size_t block(size_t count, int ranks) { return count / static_cast<size_t>(ranks); }
size_t whole(size_t count, int) { return count; }

float summed(size_t i, int ranks) {
  const auto n = static_cast<size_t>(ranks);
  const size_t of_ranks = n * (n + 1) / 2;
  return static_cast<float>(n * (i % 97) + of_ranks);
}

void all_reduce(const Call& c) {
  check(ncclAllReduce(c.in, c.out, c.count, ncclFloat, ncclSum, c.comm, c.stream), "ncclAllReduce");
}

void all_gather(const Call& c) {
  check(ncclAllGather(c.in, c.out, block(c.count, c.ranks), ncclFloat, c.comm, c.stream),
        "ncclAllGather");
}

void reduce_scatter(const Call& c) {
  check(
      ncclReduceScatter(c.in, c.out, block(c.count, c.ranks), ncclFloat, ncclSum, c.comm, c.stream),
      "ncclReduceScatter");
}

void broadcast(const Call& c) {
  check(ncclBroadcast(c.in, c.out, c.count, ncclFloat, 0, c.comm, c.stream), "ncclBroadcast");
}

// By send and receive: ncclAlltoAll is newer than some libraries that this is run with.
void alltoall(const Call& c) {
  const size_t n = block(c.count, c.ranks);
  check(ncclGroupStart(), "ncclGroupStart");
  for (int peer = 0; peer < c.ranks; ++peer) {
    const size_t at = static_cast<size_t>(peer) * n;
    check(ncclSend(c.in + at, n, ncclFloat, peer, c.comm, c.stream), "ncclSend");
    check(ncclRecv(c.out + at, n, ncclFloat, peer, c.comm, c.stream), "ncclRecv");
  }
  check(ncclGroupEnd(), "ncclGroupEnd");
}

double read_once_written_once(int ranks) { return 2.0 * ranks; }
double one_side_is_one_array(int ranks) { return 1.0 + ranks; }

constexpr Collective kCollectives[] = {
    {"all_reduce", all_reduce, read_once_written_once, whole,
     [](size_t i, size_t, int, int ranks) { return summed(i, ranks); }},
    {"all_gather", all_gather, one_side_is_one_array, whole,
     [](size_t i, size_t count, int, int ranks) {
       const size_t n = block(count, ranks);
       return input_value(i % n, static_cast<int>(i / n));
     }},
    {"reduce_scatter", reduce_scatter, one_side_is_one_array, block,
     [](size_t i, size_t count, int rank, int ranks) {
       return summed(i + static_cast<size_t>(rank) * block(count, ranks), ranks);
     }},
    {"broadcast", broadcast, one_side_is_one_array, whole,
     [](size_t i, size_t, int, int) { return input_value(i, 0); }},
    {"alltoall", alltoall, read_once_written_once, whole,
     [](size_t i, size_t count, int rank, int ranks) {
       const size_t n = block(count, ranks);
       return input_value(i % n + static_cast<size_t>(rank) * n, static_cast<int>(i / n));
     }},
};

}  // namespace

std::span<const Collective> collectives() { return kCollectives; }

}  // namespace weft::perf::rankperf
