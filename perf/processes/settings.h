// The settings of process_perf, the same in the parent and in its children.
#pragma once

#include <string>
#include <vector>

#include "nccl.h"

namespace weft::perf {

// One collective of the table. `array` is the size of nccl-tests: all blocks of all ranks.
struct Contest {
  const char* name;
  // Element i of the result of `rank`, for inputs value(r, i) on rank r and `array` elements.
  float (*expected)(size_t i, size_t array, int rank, int ranks);
  size_t (*outputs)(size_t array, int ranks);
  ncclResult_t (*call)(const float* in, float* out, size_t array, int ranks, ncclComm_t comm,
                       cudaStream_t stream);
  double (*bus_factor)(int ranks);
};
const std::vector<Contest>& contests();

// The input of a rank. Sums of inputs are exact.
inline float value(int rank, size_t i) {
  return static_cast<float>(i % 97) + static_cast<float>(rank) + 1;
}

enum class Mode { kThreads, kPlain, kRegistered };

struct Settings {
  int ranks = 4;
  size_t min_bytes = size_t{64} << 20, max_bytes = size_t{64} << 20;
  size_t factor = 8;
  int iterations = 20, warmup = 5, repetitions = 5;
  int graph_calls = 0;   // above 0: this many calls in a CUDA graph
  int launch_turns = 0;  // above 0: compare launches with and without sharing, in so many turns
  int most_ns = 500;     // that sharing may add to a launch
  int registration = 1;  // 1: cudaMalloc and ncclCommRegister; 2: ncclMemAlloc and a window
  int timeout_s = 120;   // for each of the three parts
  std::string only;      // the one collective to run
  bool help = false;
};
// Throws std::invalid_argument with one line.
Settings parse_settings(int argc, char** argv);
const char* settings_help();

struct Row {
  const Contest* contest;
  size_t array;  // elements, a multiple of the ranks
};
std::vector<Row> rows_of(const Settings& settings);

}  // namespace weft::perf
