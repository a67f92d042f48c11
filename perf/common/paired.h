// Compares the times of two contenders that took turns, pair by pair. Pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace weft::perf {

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// A median with its 95% confidence interval. The interval holds for any distribution: it counts how
// many values may by chance lie on one side of the true median.
struct Interval {
  double middle = 0, low = 0, high = 0;
};

inline Interval median_interval(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  // The number of values on either side that the limits leave out.
  size_t outside = 0;
  double chance = std::pow(0.5, n), term = chance;  // the chance that no value lies below
  while (outside + 1 < (values.size() + 1) / 2) {
    term *= (n - static_cast<double>(outside)) / (static_cast<double>(outside) + 1);
    if (chance + term > 0.025) break;
    chance += term;
    outside++;
  }
  return {median(values), values[outside], values[values.size() - 1 - outside]};
}

// The median of a/b over all pairs.
struct Comparison {
  double ratio = 1, low = 1, high = 1;
};

inline Comparison compare(std::span<const double> a, std::span<const double> b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(a.size(), b.size()); i++)
    if (b[i] > 0) ratios.push_back(a[i] / b[i]);
  if (ratios.empty()) return {};
  const Interval found = median_interval(std::move(ratios));
  return {found.middle, found.low, found.high};
}

}  // namespace weft::perf
