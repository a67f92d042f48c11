// Exact inputs per operator and the reduction of one element over all ranks.
#include "tests/support/reference.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "tests/support/sampling.h"

namespace weft::test {
namespace {

bool is_power_of_two(int n) { return (n & (n - 1)) == 0; }

// Small integers. The type holds the sum of their absolute values exactly, so the sum of any subset
// is exact. The index decides which ranks get a share.
std::vector<double> summands(const NumberType& type, int nranks, uint64_t hash) {
  std::vector<double> values(static_cast<size_t>(nranks), 0.0);
  double budget = std::min(type.exact_integer_limit(), 4096.0);
  const double largest = std::max(3.0, std::floor(budget / (2 * nranks)));
  const uint64_t first = hash % static_cast<uint64_t>(nranks);
  for (int k = 0; k < nranks && budget > 0; ++k) {
    const uint64_t h = mix(hash, static_cast<uint64_t>(k));
    const double v = std::min(budget, static_cast<double>(h % static_cast<uint64_t>(largest + 1)));
    budget -= v;
    values[(first + static_cast<uint64_t>(k)) % static_cast<uint64_t>(nranks)] =
        ((h >> 40) & 1) != 0 ? -v : v;
  }
  for (double& v : values) v += 0.0;  // no negative zero: the sign of a zero sum depends on order
  return values;
}

// Powers of two with a bounded total exponent, one of them times 1.5. Every partial product is
// exact.
std::vector<double> factors(int nranks, uint64_t hash) {
  std::vector<double> values(static_cast<size_t>(nranks), 1.0);
  int budget = 5;
  const uint64_t first = hash % static_cast<uint64_t>(nranks);
  for (int k = 0; k < nranks; ++k) {
    const uint64_t h = mix(hash, static_cast<uint64_t>(k));
    double& v = values[(first + static_cast<uint64_t>(k)) % static_cast<uint64_t>(nranks)];
    if (budget > 0 && h % 3 != 0) {
      v = h % 3 == 1 ? 0.5 : 2.0;
      --budget;
    }
    if (k == 0) v *= 1.5;
    if (((h >> 40) & 1) != 0) v = -v;
  }
  return values;
}

uint64_t finite_nonzero(const NumberType& type, uint64_t hash) {
  for (;; hash = mix(hash)) {
    const uint64_t bits = hash & type.mask();
    if (is_finite(type, bits) && decode(type, bits) != 0) return bits;
  }
}

std::vector<uint64_t> integer_column(const NumberType& type, Reduction reduction, int nranks,
                                     uint64_t hash) {
  std::vector<uint64_t> column;
  for (int r = 0; r < nranks; ++r) {
    uint64_t bits = mix(hash, static_cast<uint64_t>(r));
    if (reduction == Reduction::kAvg) {
      // The sum must not overflow: NCCL divides the wrapped sum, and no caller wants that result.
      const int64_t bound = 100 / nranks;
      bits = bits % static_cast<uint64_t>(bound + 1);
      if (type.is_signed && (mix(hash, 7) & 1) != 0) bits = ~bits + 1;
    }
    if (reduction == Reduction::kProd) bits |= 1;  // even factors would soon leave only zeros
    column.push_back(bits & type.mask());
  }
  return column;
}

uint64_t reduce_integers(const NumberType& type, Reduction reduction,
                         const std::vector<uint64_t>& column) {
  const auto less = [&](uint64_t a, uint64_t b) {
    return type.is_signed ? sign_extend(type, a) < sign_extend(type, b) : a < b;
  };
  uint64_t sum = 0;
  uint64_t product = 1;
  for (size_t r = 0; r < column.size(); ++r) {
    const uint64_t scale =
        reduction == Reduction::kPreMulSum ? premul_scalar(type, static_cast<int>(r)) : 1;
    sum += column[r] * scale;
    product *= column[r];
  }
  switch (reduction) {
    case Reduction::kProd:
      return product & type.mask();
    case Reduction::kMax:
      return *std::max_element(column.begin(), column.end(), less);
    case Reduction::kMin:
      return *std::min_element(column.begin(), column.end(), less);
    case Reduction::kAvg: {
      const auto n = static_cast<int64_t>(column.size());
      if (!type.is_signed) return (sum & type.mask()) / static_cast<uint64_t>(n);
      return static_cast<uint64_t>(sign_extend(type, sum) / n) & type.mask();  // towards zero
    }
    default:
      return sum & type.mask();
  }
}

double reduce_floats(const NumberType& type, Reduction reduction,
                     const std::vector<uint64_t>& column) {
  double sum = 0;
  double product = 1;
  double largest = decode(type, column[0]);
  double smallest = largest;
  for (size_t r = 0; r < column.size(); ++r) {
    const double v = decode(type, column[r]);
    const double scale = reduction == Reduction::kPreMulSum
                             ? decode(type, premul_scalar(type, static_cast<int>(r)))
                             : 1.0;
    sum += scale * v;
    product *= v;
    largest = std::max(largest, v);
    smallest = std::min(smallest, v);
  }
  switch (reduction) {
    case Reduction::kProd:
      return product;
    case Reduction::kMax:
      return largest;
    case Reduction::kMin:
      return smallest;
    case Reduction::kAvg:
      return sum / static_cast<double>(column.size());
    default:
      return sum;
  }
}

}  // namespace

const std::vector<Reduction>& all_reductions() {
  static const std::vector<Reduction> all = {Reduction::kSum, Reduction::kProd,
                                             Reduction::kMax, Reduction::kMin,
                                             Reduction::kAvg, Reduction::kPreMulSum};
  return all;
}

const char* name_of(Reduction reduction) {
  static const char* const names[] = {"sum", "prod", "max", "min", "avg", "premulsum"};
  return names[static_cast<int>(reduction)];
}

ncclRedOp_t built_in(Reduction reduction) {
  if (reduction == Reduction::kPreMulSum) throw std::logic_error("PreMulSum must be created");
  static const ncclRedOp_t ops[] = {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};
  return ops[static_cast<int>(reduction)];
}

uint64_t premul_scalar(const NumberType& type, int rank) {
  if (!type.is_float) return static_cast<uint64_t>(rank % 5 + 2);
  return encode(type, rank % 2 == 0 ? 2.0 : 0.5);
}

std::vector<uint64_t> reduction_column(const NumberType& type, Reduction reduction, int nranks,
                                       uint64_t salt, uint64_t index) {
  const uint64_t hash = mix(salt, index);
  if (!type.is_float) return integer_column(type, reduction, nranks, hash);
  std::vector<uint64_t> column;
  if (reduction == Reduction::kMax || reduction == Reduction::kMin) {
    for (int r = 0; r < nranks; ++r) {
      column.push_back(finite_nonzero(type, mix(hash, static_cast<uint64_t>(r))));
    }
    return column;
  }
  std::vector<double> values =
      reduction == Reduction::kProd ? factors(nranks, hash) : summands(type, nranks, hash);
  for (int r = 0; r < nranks; ++r) {
    double v = values[static_cast<size_t>(r)];
    if (reduction == Reduction::kPreMulSum) v /= decode(type, premul_scalar(type, r));
    column.push_back(encode(type, v));
  }
  return column;
}

bool reduction_is_exact(const NumberType& type, Reduction reduction, int nranks) {
  return !type.is_float || reduction != Reduction::kAvg || is_power_of_two(nranks);
}

uint64_t reduce_column(const NumberType& type, Reduction reduction,
                       const std::vector<uint64_t>& column) {
  if (!type.is_float) return reduce_integers(type, reduction, column);
  return encode(type, reduce_floats(type, reduction, column));
}

bool close_enough(const NumberType& type, Reduction reduction, const std::vector<uint64_t>& column,
                  uint64_t got) {
  if (!type.is_float) return got == reduce_integers(type, reduction, column);
  const double expected = reduce_floats(type, reduction, column);
  const double value = decode(type, got);
  const auto n = static_cast<double>(column.size());
  // No partial result is larger than this scale.
  double scale = 0;
  if (reduction == Reduction::kProd) {
    scale = std::fabs(expected);
  } else {
    for (uint64_t bits : column)
      scale += std::fabs(decode(type, bits)) * 2;  // scalars are at most 2
    if (reduction == Reduction::kAvg) scale /= 2 * n;
  }
  const double smallest = decode(type, 1);
  return std::fabs(value - expected) <= (n + 1) * (type.unit_roundoff() * scale + smallest);
}

uint64_t moved_element(const NumberType& type, int rank, uint64_t salt, uint64_t index) {
  return mix(salt, static_cast<uint64_t>(rank) + 1, index) & type.mask();
}

}  // namespace weft::test
