// A mixed-integer linear model as plain data, from the stages of TACCL's pipeline to a solver.
// Minimise cost * x subject to rows and bounds. Built by one thread, then only read.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace weft {

struct LinearModel {
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  struct Term {
    int32_t column = 0;
    double factor = 0;
  };

  // Columns (variables).
  std::vector<double> cost, lower, upper;
  std::vector<uint8_t> integer;
  // Rows, one after the other: terms of row i are row_begin[i] .. row_begin[i + 1].
  std::vector<int32_t> row_begin{0};
  std::vector<int32_t> column;
  std::vector<double> factor;
  std::vector<double> row_lower, row_upper;

  int32_t columns() const { return static_cast<int32_t>(cost.size()); }
  int32_t rows() const { return static_cast<int32_t>(row_lower.size()); }

  int32_t add_column(double objective, double least, double most);
  int32_t add_binary(double objective = 0) {
    const int32_t index = add_column(objective, 0, 1);
    integer.back() = 1;
    return index;
  }
  // Adds up terms of the same column.
  void add_row(std::vector<Term> terms, double least, double most);
  void at_least(std::vector<Term> terms, double least) {
    add_row(std::move(terms), least, kInfinity);
  }

  double objective(const std::vector<double>& values) const;
  // "" if the values satisfy all bounds, rows and integrality; else the first violation.
  std::string broken(const std::vector<double>& values, double tolerance = 1e-6) const;
};

}  // namespace weft
