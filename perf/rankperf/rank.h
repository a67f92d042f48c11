// One rank of rankperf: a thread that shares the GPU with the others and times every collective.
#pragma once

#include <barrier>
#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

#include "nccl.h"
#include "perf/rankperf/collectives.h"

namespace weft::perf::rankperf {

using Clock = std::chrono::steady_clock;

// Of one collective and size. Medians; of several ranks the slowest counts.
struct Times {
  double wall_us = 0;   // calls one after the other on a stream
  double graph_us = 0;  // the same calls inside a CUDA graph
  size_t wrong = 0;     // elements
};

// What the ranks share.
struct Team {
  Team(int n, size_t bytes) : ranks(n), most_bytes(bytes), meeting(n), of_rank(n) {}

  const int ranks;
  const size_t most_bytes;
  ncclUniqueId id{};
  std::barrier<> meeting;
  std::vector<Times> of_rank;
  Clock::time_point began = Clock::now();
  // Rank 0 calls these while the others wait.
  std::function<void(double seconds)> initialized;
  std::function<void(const Collective&, size_t bytes, const Times&)> measured;
};

void run_rank(Team& team, int rank);

}  // namespace weft::perf::rankperf
