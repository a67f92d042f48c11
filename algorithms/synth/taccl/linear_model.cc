// See linear_model.h.
#include "algorithms/synth/taccl/linear_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace weft {

int32_t LinearModel::add_column(double objective, double least, double most) {
  cost.push_back(objective);
  lower.push_back(least);
  upper.push_back(most);
  integer.push_back(0);
  return columns() - 1;
}

void LinearModel::add_row(std::vector<Term> terms, double least, double most) {
  std::sort(terms.begin(), terms.end(),
            [](const Term& a, const Term& b) { return a.column < b.column; });
  const auto first = static_cast<size_t>(row_begin.back());
  for (const Term& term : terms) {
    if (column.size() > first && column.back() == term.column) {
      factor.back() += term.factor;
      continue;
    }
    column.push_back(term.column);
    factor.push_back(term.factor);
  }
  row_begin.push_back(static_cast<int32_t>(column.size()));
  row_lower.push_back(least);
  row_upper.push_back(most);
}

double LinearModel::objective(const std::vector<double>& values) const {
  double sum = 0;
  for (size_t i = 0; i < cost.size(); i++) sum += cost[i] * values[i];
  return sum;
}

std::string LinearModel::broken(const std::vector<double>& values, double tolerance) const {
  if (values.size() != cost.size())
    return fmt::format("{} values for {} columns", values.size(), cost.size());
  for (size_t i = 0; i < values.size(); i++) {
    const double slack = tolerance * std::max(1.0, std::abs(values[i]));
    if (!(values[i] >= lower[i] - slack && values[i] <= upper[i] + slack))
      return fmt::format("column {} is {}, outside {} to {}", i, values[i], lower[i], upper[i]);
    if (integer[i] != 0 && std::abs(values[i] - std::round(values[i])) > tolerance)
      return fmt::format("column {} is {}, not a whole number", i, values[i]);
  }
  for (size_t r = 0; r < row_lower.size(); r++) {
    double sum = 0, size = 1;
    for (int32_t k = row_begin[r]; k < row_begin[r + 1]; k++) {
      const double part = factor[static_cast<size_t>(k)] *
                          values[static_cast<size_t>(column[static_cast<size_t>(k)])];
      sum += part;
      size = std::max(size, std::abs(part));
    }
    if (!(sum >= row_lower[r] - tolerance * size && sum <= row_upper[r] + tolerance * size))
      return fmt::format("row {} is {}, outside {} to {}", r, sum, row_lower[r], row_upper[r]);
  }
  return "";
}

}  // namespace weft
