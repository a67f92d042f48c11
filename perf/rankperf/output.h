// What rankperf prints: a table, or rows for perf/check_baselines.
#pragma once

#include <cstddef>
#include <string>

#include "perf/rankperf/rank.h"

namespace weft::perf::rankperf {

class Output {
 public:
  Output(bool json, int ranks, std::string command);

  void begin(double copy_gbps);
  void initialized(double seconds);
  void measured(const Collective& collective, size_t bytes, const Times& times);

 private:
  void row(const std::string& what, double value, const char* unit, const char* better) const;

  const bool json_;
  const int ranks_;
  const std::string command_;
  const bool is_weft_;
  const std::string library_, date_, machine_, driver_;
  double copy_gbps_ = 0;
};

}  // namespace weft::perf::rankperf
