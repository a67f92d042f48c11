// The flags of nccl-tests that mean something in host mode.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "perf/common/datatypes.h"

namespace weft::perf {

struct Options {
  int threads = 1;
  int ranks_per_thread = 1;
  size_t min_bytes = 32u << 20;
  size_t max_bytes = 32u << 20;
  size_t step_bytes = 1u << 20;
  int step_factor = 1;  // above 1 it replaces step_bytes
  int iterations = 20;
  int aggregated = 1;
  int warmup = 1;
  int cycles = 1;  // 0: for ever
  int parallel_init = 0;
  int checks = 1;
  std::vector<Op> ops = {Op::kSum};
  std::vector<ncclDataType_t> types = {ncclFloat32};
  int root = 0;  // -1: every rank in turn
  int blocking = 0;
  int stream_null = 0;
  int timeout_s = 0;
  int report_cpu_time = 0;
  int report_timestamps = 0;
  std::string json_file;
  int average = 1;
  int local_register = 0;
  int cta_policy = -1;  // -1: the library's default
  int unalign = 0;      // elements between the allocation and the start of a buffer
  int per_iteration = 0;
  int per_iteration_skip = 0;
  bool help = false;
};

// Throws UsageError with one line that names the flag.
Options parse_options(int argc, char** argv);
std::string help_text(const std::string& program);

// The sizes of the rows, in order.
std::vector<size_t> row_sizes(const Options& options);

}  // namespace weft::perf
