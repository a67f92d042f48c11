// See refinement.h.
#include "algorithms/bounds/refinement.h"

#include <bit>
#include <unordered_map>

namespace weft {
namespace {

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t seen(double value, int32_t other) {
  return mix(std::bit_cast<uint64_t>(value) ^ mix(static_cast<uint64_t>(other) + 1));
}

// Splits classes by what their members see; returns the new number of classes. Classes are numbered
// in order of appearance, so the numbers do not depend on the hash.
int split(std::vector<int32_t>& classes, const std::vector<uint64_t>& signatures) {
  std::unordered_map<uint64_t, int32_t> numbers;
  for (size_t i = 0; i < classes.size(); i++) {
    const uint64_t key = mix(signatures[i] + mix(static_cast<uint64_t>(classes[i])));
    classes[i] = numbers.try_emplace(key, static_cast<int32_t>(numbers.size())).first->second;
  }
  return static_cast<int>(numbers.size());
}

}  // namespace

Quotient refine(const SparseProgram& program) {
  Quotient q;
  q.row_class.assign(program.rows.size(), 0);
  q.column_class.assign(program.c.size(), 0);
  std::vector<uint64_t> row_seen(program.rows.size()), column_seen(program.c.size());
  for (size_t r = 0; r < row_seen.size(); r++) row_seen[r] = seen(program.b[r], 0);
  for (size_t c = 0; c < column_seen.size(); c++) column_seen[c] = seen(program.c[c], 0);
  for (;;) {
    const int rows = split(q.row_class, row_seen), columns = split(q.column_class, column_seen);
    if (rows == q.rows && columns == q.columns) return q;
    q.rows = rows;
    q.columns = columns;
    row_seen.assign(row_seen.size(), 0);
    column_seen.assign(column_seen.size(), 0);
    for (size_t r = 0; r < program.rows.size(); r++)
      for (const SparseProgram::Entry& entry : program.rows[r]) {
        const auto c = static_cast<size_t>(entry.column);
        // Sums do not depend on the order of entries.
        row_seen[r] += seen(entry.value, q.column_class[c]);
        column_seen[c] += seen(entry.value, q.row_class[r]);
      }
  }
}

LinearProgram merged(const SparseProgram& program, const Quotient& quotient) {
  LinearProgram small;
  small.rows = quotient.rows;
  small.columns = quotient.columns;
  small.a.assign(static_cast<size_t>(small.rows) * static_cast<size_t>(small.columns), 0.0);
  small.b.assign(static_cast<size_t>(small.rows), 0.0);
  small.c.assign(static_cast<size_t>(small.columns), 0.0);
  std::vector<bool> have(static_cast<size_t>(small.rows), false);
  for (size_t r = 0; r < program.rows.size(); r++) {
    const auto row = static_cast<size_t>(quotient.row_class[r]);
    if (have[row]) continue;  // all rows of a class give the same sums
    have[row] = true;
    small.b[row] = program.b[r];
    for (const SparseProgram::Entry& entry : program.rows[r])
      small.at(quotient.row_class[r], quotient.column_class[static_cast<size_t>(entry.column)]) +=
          entry.value;
  }
  for (size_t c = 0; c < program.c.size(); c++)
    small.c[static_cast<size_t>(quotient.column_class[c])] += program.c[c];
  return small;
}

}  // namespace weft
