// The simplex method on a dictionary. Programs from graphs are degenerate (nearly all of b is 0).
// So a perturbed b, without ties or cycles, chooses the pivots. The true b is updated along with it
// and gives the solution.
#include "algorithms/bounds/simplex.h"

#include <cmath>
#include <cstdint>
#include <utility>

namespace weft {
namespace {

constexpr double kTiny = 1e-9;

class Dictionary {
 public:
  explicit Dictionary(const LinearProgram& p)
      : rows_(static_cast<size_t>(p.rows)),
        columns_(static_cast<size_t>(p.columns)),
        width_(columns_ + 2),
        cells_((rows_ + 1) * width_, 0.0) {
    uint64_t random = 88172645463325252u;
    for (size_t r = 0; r < rows_; r++) {
      for (size_t c = 0; c < columns_; c++) cell(r, c) = p.a[r * columns_ + c];
      random ^= random << 13, random ^= random >> 7, random ^= random << 17;
      cell(r, columns_) = p.b[r];
      cell(r, columns_ + 1) =
          p.b[r] + 1e-6 * (1.0 + static_cast<double>(random >> 11) / 9007199254740992.0);
      basic_.push_back(columns_ + r);
    }
    for (size_t c = 0; c < columns_; c++) {
      cell(rows_, c) = -p.c[c];
      free_.push_back(c);
    }
  }

  enum class Outcome { kOptimal, kUnbounded, kGoOn };

  Outcome step() {
    size_t entering = columns_;
    double least = -kTiny;
    for (size_t c = 0; c < columns_; c++)
      if (cell(rows_, c) < least) {
        least = cell(rows_, c);
        entering = c;
      }
    if (entering == columns_) return Outcome::kOptimal;
    size_t leaving = rows_;
    double ratio = 0;
    for (size_t r = 0; r < rows_; r++) {
      if (cell(r, entering) <= kTiny) continue;
      const double candidate = cell(r, columns_ + 1) / cell(r, entering);
      if (leaving == rows_ || candidate < ratio) {
        ratio = candidate;
        leaving = r;
      }
    }
    if (leaving == rows_) return Outcome::kUnbounded;
    pivot(leaving, entering);
    return Outcome::kGoOn;
  }

  std::vector<double> solution() const {
    std::vector<double> x(columns_, 0.0);
    for (size_t r = 0; r < rows_; r++)
      if (basic_[r] < columns_) x[basic_[r]] = std::fmax(0.0, cells_[r * width_ + columns_]);
    return x;
  }

 private:
  double& cell(size_t row, size_t column) { return cells_[row * width_ + column]; }

  void pivot(size_t row, size_t column) {
    const double inverse = 1 / cell(row, column);
    for (size_t c = 0; c < width_; c++) cell(row, c) *= inverse;
    cell(row, column) = inverse;
    for (size_t r = 0; r <= rows_; r++) {
      const double factor = cell(r, column);
      if (r == row || factor == 0) continue;
      double* target = &cell(r, 0);
      const double* source = &cell(row, 0);
      target[column] = 0;
      for (size_t c = 0; c < width_; c++) target[c] -= factor * source[c];
    }
    std::swap(basic_[row], free_[column]);
  }

  size_t rows_, columns_, width_;  // a row ends with the true b and the perturbed b
  std::vector<double> cells_;      // the last row is the objective
  std::vector<size_t> basic_, free_;
};

}  // namespace

std::optional<std::vector<double>> maximise(const LinearProgram& program, int most_pivots) {
  Dictionary dictionary(program);
  for (int i = 0; i < most_pivots; i++) {
    const Dictionary::Outcome outcome = dictionary.step();
    if (outcome == Dictionary::Outcome::kOptimal) return dictionary.solution();
    if (outcome == Dictionary::Outcome::kUnbounded) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace weft
