// See token_slices.h.
#include "src/workload/token_slices.h"

#include <algorithm>
#include <limits>

namespace weft::workload {

// For each limit on the longest slice, the least sum of times; limits are the times that occur.
std::vector<double> best_slices(int grains, int stages, int sequences,
                                const std::function<double(double low, double high)>& time) {
  const auto n = static_cast<size_t>(grains);
  std::vector<std::vector<double>> us(n + 1, std::vector<double>(n + 1, 0));
  std::vector<double> limits;
  for (size_t i = 0; i < n; i++)
    for (size_t j = i + 1; j <= n; j++) {
      us[i][j] = time(static_cast<double>(i) / grains, static_cast<double>(j) / grains);
      limits.push_back(us[i][j]);
    }
  std::sort(limits.begin(), limits.end());
  limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
  // Limits that differ by less than a percent give nearly the same: keep one of them.
  std::vector<double> few;
  for (const double limit : limits)
    if (few.empty() || limit > few.back() * 1.01) few.push_back(limit);
  if (few.empty() || few.back() < limits.back()) few.push_back(limits.back());
  const double infinite = std::numeric_limits<double>::infinity();
  double best = infinite;
  std::vector<double> cuts;
  for (const double limit : few) {
    if (limit * (stages - 1) >= best) break;
    std::vector<double> sum(n + 1, infinite);
    std::vector<size_t> from(n + 1, 0);
    sum[0] = 0;
    for (size_t j = 1; j <= n; j++)
      for (size_t i = 0; i < j; i++)
        if (us[i][j] <= limit && sum[i] + us[i][j] < sum[j]) {
          sum[j] = sum[i] + us[i][j];
          from[j] = i;
        }
    const double all = sum[n] * sequences + limit * (stages - 1);
    if (all >= best) continue;
    best = all;
    cuts.clear();
    for (size_t j = from[n]; j > 0; j = from[j]) cuts.push_back(static_cast<double>(j) / grains);
    std::reverse(cuts.begin(), cuts.end());
  }
  return cuts;
}

}  // namespace weft::workload
