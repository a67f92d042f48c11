// Times a schedule with as many ranks as it has, threads that share GPU 0.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/planner/imported_schedules.h"

namespace weft::perf::schedules {

// Of one size. Medians over repetitions; of the ranks the slowest counts.
struct Times {
  uint64_t bytes = 0;    // of the whole array, rounded as PlayedCall::count_for() does
  double stream_us = 0;  // a call, of calls one after the other on a stream
  double graph_us = 0;   // a call, inside a CUDA graph of calls
  uint64_t wrong = 0;    // elements, at both ends of all ranks' results
  double best_us() const { return stream_us < graph_us ? stream_us : graph_us; }
};

// `schedules` has one schedule. It runs out of place if it can. An error of a rank ends the
// program, because other ranks wait for it on the GPU.
std::vector<Times> measure(const std::shared_ptr<const ImportedSchedules>& schedules,
                           std::span<const uint64_t> sizes);

}  // namespace weft::perf::schedules
