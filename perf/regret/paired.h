// Compares the times of two contenders that took turns, pair by pair. Pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace weft::perf {

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// The median of a/b over all pairs, and its 95% confidence interval. The interval holds for any
// distribution: it counts how many pairs may by chance lie on one side of the true median.
struct Comparison {
  double ratio = 1, low = 1, high = 1;
};

inline Comparison compare(std::span<const double> a, std::span<const double> b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(a.size(), b.size()); i++)
    if (b[i] > 0) ratios.push_back(a[i] / b[i]);
  if (ratios.empty()) return {};
  std::sort(ratios.begin(), ratios.end());
  const auto n = static_cast<double>(ratios.size());
  // The number of pairs on either side that the limits leave out.
  size_t outside = 0;
  double chance = std::pow(0.5, n), term = chance;  // the chance that no pair lies below
  while (outside + 1 < (ratios.size() + 1) / 2) {
    term *= (n - static_cast<double>(outside)) / (static_cast<double>(outside) + 1);
    if (chance + term > 0.025) break;
    chance += term;
    outside++;
  }
  return {median(ratios), ratios[outside], ratios[ratios.size() - 1 - outside]};
}

}  // namespace weft::perf
