// Small dense linear programs: maximise c x subject to A x <= b, x >= 0, with b >= 0, so that x = 0
// is a start. For at most some thousand rows. refinement.h shrinks larger programs.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace weft {

struct LinearProgram {
  int rows = 0, columns = 0;
  std::vector<double> a;  // row by row
  std::vector<double> b, c;
  double& at(int row, int column) {
    return a[static_cast<size_t>(row) * static_cast<size_t>(columns) + static_cast<size_t>(column)];
  }
};

// The optimal x, or nothing when the program is unbounded or `most_pivots` were not enough.
std::optional<std::vector<double>> maximise(const LinearProgram& program, int most_pivots);

}  // namespace weft
