// Finds the rates that best explain measured times. Pure functions; for `weft calibrate`.
#pragma once

#include <span>
#include <string>

#include "src/planner/cost_model.h"

namespace weft {

struct TimedPlan {
  std::string plan;
  ScheduleShape shape;
  Collective collective;
  double bytes = 0;
  HostSetting setting;
  double us = 0;  // measured
};

struct Fit {
  Rates rates;
  PlanFactors factors;      // what the rates do not explain, per plan
  double median_error = 0;  // of the rates without the factors, relative to the measurement
};

// Starts from `start`. Rates that no sample depends on keep their value.
Fit fit_rates(std::span<const TimedPlan> samples, const Rates& start);

}  // namespace weft
