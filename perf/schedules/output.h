// What schedule_perf prints: a table, or rows for perf/check_baselines.
#pragma once

#include <string>

#include "perf/schedules/figures.h"
#include "perf/schedules/measure.h"

namespace weft::perf::schedules {

class Output {
 public:
  Output(bool json, int blocks, double copy_gbps);

  // A schedule, before its sizes.
  void begin(const ImportedSchedule& schedule, const std::string& name, const Figures& figures);
  // `asked`: the size on the command line, which names the row.
  void measured(uint64_t asked, const Times& times);
  // `us`: the time of the smallest size.
  void step_overhead(double us);

 private:
  void row(const std::string& what, double value, const char* unit, const char* better) const;
  double gbps(uint64_t chunks, const Times& times) const;

  const bool json_;
  const int blocks_;
  const double copy_gbps_;
  const std::string date_, machine_, driver_;
  const ImportedSchedule* schedule_ = nullptr;
  std::string name_;
  Figures figures_;
};

}  // namespace weft::perf::schedules
