// The kernels of one step in a PyTorch profiler trace. A pure function; errors are Error, one line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/schedule/collective.h"

namespace weft::workload {

struct Kernel {
  double begin = 0, end = 0;
  double launched = 0;  // by the host
  bool comm = false;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  double bytes = 0;
  std::vector<int> ranks;
  int stream = 0;
};

struct KinetoStep {
  int world = 1;                // ranks
  std::vector<Kernel> kernels;  // in order of their begin
};
KinetoStep read_kineto(std::string_view text, const std::string& where);

}  // namespace weft::workload
