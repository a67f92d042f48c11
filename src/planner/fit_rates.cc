// See fit_rates.h. Changes one rate after the other while that helps, by ever smaller factors. The
// error is the logarithm of predicted over measured, so small sizes weigh as much as large ones.
// Outliers (another process had the core) count by their amount, not its square.
#include "src/planner/fit_rates.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

double misfit(std::span<const TimedPlan> samples, const Rates& rates) {
  double sum = 0;
  for (const TimedPlan& s : samples) {
    const double off =
        std::abs(std::log(predict(s.shape, s.collective, s.bytes, s.setting, rates) / s.us));
    sum += off < 0.2 ? off * off : 0.4 * off - 0.04;
  }
  return sum;
}

PlanFactors leftover_factors(std::span<const TimedPlan> samples, const Rates& rates) {
  PlanFactors factors;
  for (const TimedPlan& s : samples) {
    const double factor = s.us / predict(s.shape, s.collective, s.bytes, s.setting, rates);
    factors[factor_key(s.collective.kind, s.plan)].push_back(
        {s.collective.nranks, s.bytes, std::clamp(factor, 0.05, 20.0)});
  }
  return factors;
}

}  // namespace

Fit fit_rates(std::span<const TimedPlan> samples, const Rates& start) {
  Fit fit{start};
  double best = misfit(samples, fit.rates);
  for (const double factor : {2.0, 1.4, 1.2, 1.1, 1.05, 1.02}) {
    bool better = true;
    for (int round = 0; better && round < 12; round++) {
      better = false;
      for (const RateName& name : kRateNames)
        for (const double by : {factor, 1 / factor}) {
          Rates tried = fit.rates;
          tried.*name.rate = std::max(1e-3, tried.*name.rate) * by;
          const double value = misfit(samples, tried);
          if (value >= best * (1 - 1e-6)) continue;
          best = value;
          fit.rates = tried;
          better = true;
        }
    }
  }
  fit.factors = leftover_factors(samples, fit.rates);
  std::vector<double> errors;
  for (const TimedPlan& s : samples)
    errors.push_back(
        std::abs(predict(s.shape, s.collective, s.bytes, s.setting, fit.rates) / s.us - 1));
  std::sort(errors.begin(), errors.end());
  if (!errors.empty()) fit.median_error = errors[errors.size() / 2];
  return fit;
}

}  // namespace weft
