// Shrinks a large symmetric linear program. Merges rows, and columns, that colour refinement cannot
// tell apart. The quotient has the same optimum, because the average of a solution over each class
// of columns is a solution too. Symmetry need not be known or searched for. A machine of 128 equal
// GPUs becomes a few dozen rows.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/bounds/simplex.h"

namespace weft {

// maximise c x subject to A x <= b, x >= 0
struct SparseProgram {
  struct Entry {
    int32_t column = 0;
    double value = 0;
  };
  std::vector<std::vector<Entry>> rows;
  std::vector<double> b, c;
};

struct Quotient {
  int rows = 0, columns = 0;
  std::vector<int32_t> row_class, column_class;
};

Quotient refine(const SparseProgram& program);

// One row and one column per class. A column stands for the common value of its class.
LinearProgram merged(const SparseProgram& program, const Quotient& quotient);

}  // namespace weft
