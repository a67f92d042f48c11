// Statistics over the iterations of a row.
#include "perf/common/row.h"

#include <algorithm>
#include <cmath>

namespace weft::perf {

IterationStatistics summarize(std::vector<double> iteration_us) {
  if (iteration_us.empty()) return {};
  std::sort(iteration_us.begin(), iteration_us.end());
  const auto count = static_cast<double>(iteration_us.size());
  double sum = 0;
  for (double us : iteration_us) sum += us;
  const double mean = sum / count;
  double squares = 0;
  for (double us : iteration_us) squares += (us - mean) * (us - mean);
  const auto p99 = static_cast<size_t>(std::ceil(0.99 * count)) - 1;
  return {iteration_us.front(), iteration_us.back(), iteration_us[p99],
          mean > 0 ? 100.0 * std::sqrt(squares / count) / mean : 0.0};
}

}  // namespace weft::perf
