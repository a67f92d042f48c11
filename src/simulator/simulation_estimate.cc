// Estimates: once slices come at an even pace, the rest need no simulation.
#include <algorithm>
#include <cmath>

#include "src/simulator/simulation_run.h"

namespace weft {
namespace {

// An estimate needs at least kFewest slices at an even pace, or kFewestOfMany after
// kVeryManyEvents. Even means kEven, or kLittle after kManyEvents. A schedule kHopeless times over
// options_.beyond_us is given up early.
constexpr size_t kFewest = 8, kFewestOfMany = 5;
constexpr double kEven = 1e-6, kLittle = 0.01, kHopeless = 1.1;
constexpr uint64_t kManyEvents = 200000, kVeryManyEvents = 1000000;

}  // namespace

void SimulationRun::end_slice() {
  slices_done_.push_back({now_, begun_});
  const size_t done = slices_done_.size();
  if (pace_us_ == 0 && simulated_ < slices_ && done == static_cast<size_t>(simulated_)) {
    period_ = 0;
    pace_us_ = std::max(busiest_us_, pace_us((done - 1) / 2, done - 1));
  }
  const int32_t left = slices_ - (begun_ + 1);
  if (!options_.estimate || simulated_ < slices_ || left <= 0 ||
      done < (events_.pushed() > kVeryManyEvents ? kFewestOfMany : kFewest))
    return;
  period_ = find_period();
  const size_t last = done - 1;
  pace_us_ = pace_us(period_ > 0 ? last - static_cast<size_t>(period_) : last / 2, last);
  if (pace_us_ < busiest_us_ * (1 - kEven)) return;  // FIFOs are still being filled
  if (period_ == 0) {
    const double all_us = now_ + pace_us_ * (slices_ - static_cast<int32_t>(done));
    if (all_us > options_.beyond_us * kHopeless) {
      given_up_us_ = all_us;
      return;
    }
    if (events_.pushed() < kManyEvents || unevenness() > kLittle) return;
  }
  // Leave out whole periods only.
  simulated_ = slices_ - (left - left % std::max(1, period_));
}

// The first slices fill the pipeline, so only the later half counts. While some lanes still move
// further ahead of others, the pace has not settled.
int SimulationRun::find_period() const {
  const size_t last = slices_done_.size() - 1;
  for (size_t period = 1; period <= last / 4; period++) {
    const double us = slices_done_[last].at_us - slices_done_[last - period].at_us;
    bool same = true;
    for (size_t k = last; same && k - period >= last / 2; k--) {
      const SliceDone &now = slices_done_[k], &before = slices_done_[k - period];
      same = std::abs(now.at_us - before.at_us - us) <= us * kEven &&
             now.begun - before.begun == static_cast<int32_t>(period);
    }
    if (same) return static_cast<int>(period);
  }
  return 0;
}

double SimulationRun::unevenness() const {
  const size_t last = slices_done_.size() - 1, middle = last * 3 / 4;
  return std::abs(pace_us(last / 2, middle) / pace_us(middle, last) - 1);
}

double SimulationRun::rest_us() const { return pace_us_ * (slices_ - simulated_); }

}  // namespace weft
