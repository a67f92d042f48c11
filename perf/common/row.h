// One line of results.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "perf/common/datatypes.h"

namespace weft::perf {

struct Measurement {
  double us = 0;
  double algorithm_gbps = 0;  // GB/s, GB = 1e9 bytes
  double bus_gbps = 0;
  std::optional<long long> wrong;  // empty: not checked
};

// Of single iterations on rank 0, in us. cv is the standard deviation in percent of the mean.
struct IterationStatistics {
  double min = 0;
  double max = 0;
  double p99 = 0;
  double cv = 0;
};

IterationStatistics summarize(std::vector<double> iteration_us);

struct Row {
  size_t bytes = 0;
  size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  Op op = Op::kNone;
  int root = -1;
  Measurement out_of_place;
  Measurement in_place;
  std::optional<IterationStatistics> iterations;
  std::string timestamp;
};

}  // namespace weft::perf
