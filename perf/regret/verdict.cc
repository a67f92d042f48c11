// See verdict.h.
#include "perf/regret/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "perf/common/device.h"

namespace weft::perf {
namespace {

constexpr double kBar = 1.1;

std::vector<double> times_of(const Entrant& entrant, uint64_t size) {
  const auto it = entrant.times.find(size);
  return it == entrant.times.end() ? std::vector<double>{} : it->second;
}

}  // namespace

void Verdict::print_head(int ranks, bool processes) {
  fmt::print(
      "# {} {} on {}\n# {:12} {:>11} {:10} {:>11} {:10} {:>11} {:>6} {:>13} {:>6} {:6} {:>11} "
      "all\n",
      ranks, processes ? "processes" : "ranks", device::name(), "collective", "size", "chosen",
      "us", "best", "us", "regret", "95%", "twice", "", "predicted");
}

void Verdict::add_row(const std::string& collective, uint64_t size,
                      const std::vector<Entrant>& entrants, double predicted_us) {
  const auto it = entrants[0].chosen.find(size);
  const std::string plan = it == entrants[0].chosen.end() ? "?" : it->second;
  const auto is_chosen = [&](const Entrant& e) {
    return (e.twins + " ").find(" " + plan + " ") != std::string::npos;
  };
  // The chosen plan ran twice in every repetition, so the mean counts.
  std::vector<double> chosen = times_of(entrants[0], size);
  Comparison regret, twice;
  for (const Entrant& entrant : entrants)
    if (is_chosen(entrant)) {
      const std::vector<double> forced = times_of(entrant, size);
      twice = compare(chosen, forced);
      for (size_t i = 0; i < std::min(chosen.size(), forced.size()); i++)
        chosen[i] = std::sqrt(chosen[i] * forced[i]);
    }
  const double us = median(chosen);
  double best = us;
  std::string name = plan, all;
  for (const Entrant& entrant : entrants) {
    if (entrant.plan.empty()) continue;
    const std::vector<double> list = times_of(entrant, size);
    all += list.empty() ? fmt::format(" {}=-", entrant.plan)
                        : fmt::format(" {}={:.1f}", entrant.plan, median(list));
    const Comparison compared = compare(chosen, list);
    if (!is_chosen(entrant) && compared.ratio > regret.ratio) {
      regret = compared;
      best = median(list);
      name = entrant.plan;
    }
  }
  regrets_.push_back(regret);
  noise_.push_back(twice);
  if (predicted_us > 0) errors_.push_back(std::abs(predicted_us / us - 1));
  const char* verdict = regret.ratio <= kBar ? "" : regret.low > kBar ? "SLOW" : "noise?";
  fmt::print(
      "{:14} {:>11} {:10} {:>11.1f} {:10} {:>11.1f} {:>6.3f} {:>13} {:>6.3f} {:6} {:>11.1f} {}\n",
      collective, size, plan, us, name, best, regret.ratio,
      fmt::format("{:.2f}..{:.2f}", regret.low, regret.high), twice.ratio, verdict, predicted_us,
      all);
  std::fflush(stdout);
}

int Verdict::finish(double limit) const {
  const auto above = std::count_if(regrets_.begin(), regrets_.end(),
                                   [](const Comparison& r) { return r.ratio > kBar; });
  const auto sure = std::count_if(regrets_.begin(), regrets_.end(),
                                  [](const Comparison& r) { return r.low > kBar; });
  const auto slow = std::count_if(regrets_.begin(), regrets_.end(),
                                  [&](const Comparison& r) { return r.low > limit; });
  std::vector<double> ratios;
  for (const Comparison& regret : regrets_) ratios.push_back(regret.ratio);
  fmt::print(
      "# regret: median {:.3f}, largest {:.3f}; {} of {} rows above {:.2f}, {} of them beyond "
      "doubt\n",
      median(ratios), ratios.empty() ? 0 : *std::max_element(ratios.begin(), ratios.end()), above,
      ratios.size(), kBar, sure);
  std::vector<double> noise;
  for (const Comparison& n : noise_) noise.push_back(std::max(n.ratio, 1 / n.ratio));
  fmt::print(
      "# the same plan measured twice: median {:.3f}, largest {:.3f}; {} of {} rows above "
      "{:.2f}\n",
      median(noise), noise.empty() ? 0 : *std::max_element(noise.begin(), noise.end()),
      std::count_if(noise.begin(), noise.end(), [](double n) { return n > kBar; }), noise.size(),
      kBar);
  fmt::print("# predicted against measured: median error {:.0f}% of {} rows\n",
             100 * median(errors_), errors_.size());
  std::fflush(stdout);
  return limit > 0 && slow > 0 ? 1 : 0;
}

}  // namespace weft::perf
