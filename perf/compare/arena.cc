// Alternates the contenders, so that the machine's noise affects all of them alike.
#include "perf/compare/arena.h"

#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <new>
#include <vector>

#include "perf/common/errors.h"

namespace weft::perf {
namespace {

constexpr double kTargetSeconds = 2e-3;  // length of one timed burst
constexpr int kMostIterations = 2000;

using Action = std::function<void()>;

double worst_over_ranks(double value) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return value;
}

// Seconds per call on the slowest rank.
double time_burst(const Action& action, int iterations) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < iterations; ++i) action();
  return worst_over_ranks((MPI_Wtime() - start) / iterations);
}

double median(std::vector<double> values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<long>(middle), values.end());
  return values[middle];
}

long long count_wrong(const Contest& contest, const Job& job, const Extent& extent,
                      const float* recv) {
  long long wrong = 0;
  for (size_t i = 0; i < extent.recv; ++i) wrong += recv[i] != contest.expected(job, extent, i);
  return wrong;
}

}  // namespace

Arena::MemoryPtr Arena::allocate(Memory memory, size_t bytes) {
  if (memory == Memory::kMalloc) {
    MemoryPtr block(std::malloc(bytes), std::free);
    if (!block) throw std::bad_alloc();
    return block;
  }
  void* block = nullptr;
  check(ncclMemAlloc(&block, bytes), "ncclMemAlloc");
  return {block, [](void* p) { ncclMemFree(p); }};
}

Arena::Arena(Memory memory, size_t bytes)
    : send_(allocate(memory, bytes)), recv_(allocate(memory, bytes)) {}

void Arena::write_input(const Job& job, const Extent& extent) const {
  for (size_t i = 0; i < extent.send; ++i) send()[i] = input_value(job.rank, i);
  // Poison, except for the root of a broadcast, which reads its receive buffer.
  for (size_t i = 0; i < extent.recv; ++i) recv()[i] = job.rank == 0 ? input_value(0, i) : -1.0f;
}

Outcome compete(const Contest& contest, const Job& job, const Arena& malloced, const Arena& nccl,
                size_t bytes, int repetitions) {
  const Extent extent = contest.extent(std::max<size_t>(bytes / sizeof(float), 1), job.nranks);
  const auto weft_on = [&](const Arena& arena) {
    check(contest.weft(arena.send(), arena.recv(), extent.count, job.comm), contest.name.data());
  };
  const std::array<Action, kContenders> actions = {
      [&] { contest.mpi(malloced.send(), malloced.recv(), extent.count); },
      [&] { weft_on(malloced); }, [&] { weft_on(nccl); }};

  Outcome outcome;
  outcome.bytes = std::max(extent.send, extent.recv) * sizeof(float);
  std::array<int, kContenders> iterations{};
  for (size_t c = 0; c < kContenders; ++c) {
    const Arena& arena = c == kWeftMemAlloc ? nccl : malloced;
    arena.write_input(job, extent);
    MPI_Barrier(MPI_COMM_WORLD);
    actions[c]();
    outcome.wrong += count_wrong(contest, job, extent, arena.recv());
    const double once = std::max(time_burst(actions[c], 3), 1e-7);
    iterations[c] = std::clamp(static_cast<int>(kTargetSeconds / once), 1, kMostIterations);
  }
  MPI_Allreduce(MPI_IN_PLACE, &outcome.wrong, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);

  std::array<std::vector<double>, kContenders> times;
  for (int r = 0; r < repetitions; ++r) {
    for (int turn = 0; turn < kContenders; ++turn) {
      const auto c = static_cast<size_t>((r + turn) % kContenders);  // each is first in turn
      times[c].push_back(time_burst(actions[c], iterations[c]));
    }
  }
  for (size_t c = 0; c < kContenders; ++c) outcome.us[c] = median(times[c]) * 1e6;
  return outcome;
}

}  // namespace weft::perf
