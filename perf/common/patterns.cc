// Draws inputs whose partial results are exact in the element type, in any order and grouping.
#include "perf/common/patterns.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

namespace weft::perf {
namespace {

uint64_t mix(uint64_t a, uint64_t b, uint64_t c = 0) {
  uint64_t x = a * 0x9e3779b97f4a7c15ull ^ (b + 0x7f4a7c15ull) * 0xbf58476d1ce4e5b9ull ^
               (c + 1) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  x *= 0xd6e8feb86659fd93ull;
  return x ^ (x >> 32);
}

using Values = std::vector<double>;  // one element of every rank

bool coin(uint64_t element, uint64_t rank) { return mix(element, rank, 77) & 1; }

// Gives `units` ones to ranks at random, so that the values add up to exactly `units`.
void deal(uint64_t element, uint64_t units, Values& values) {
  std::fill(values.begin(), values.end(), 0.0);
  for (uint64_t u = 0; u < units; ++u) values[mix(element, u) % values.size()] += 1;
}

// Draws magnitudes whose sum stays within `limit`.
void draw_sum(uint64_t element, uint64_t limit, Values& values) {
  const uint64_t share = limit / values.size();
  if (share < 8) return deal(element, 1 + mix(element, 5) % limit, values);
  for (size_t r = 0; r < values.size(); ++r) {
    values[r] = static_cast<double>(mix(element, r) % (share + 1));
  }
}

void draw_average(const DataType& type, uint64_t element, Values& values) {
  const auto limit = static_cast<uint64_t>(type.exact);
  const bool negative = type.is_signed && coin(element, 0);
  if (type.is_float) {
    draw_sum(element, limit, values);
  } else {
    // Integer means must be whole numbers. Otherwise truncation and rounding would differ.
    const uint64_t largest = std::min<uint64_t>(limit / values.size(), 16);
    deal(element, largest == 0 ? 0 : values.size() * (1 + mix(element, 5) % largest), values);
  }
  // All values have one sign: a mean of mixed signs could cancel and lose relative precision.
  if (negative) {
    for (double& v : values) v = v == 0 ? 0 : -v;
  }
}

void draw_product(uint64_t element, Values& values) {
  constexpr uint64_t kMostDoublings = 6;
  deal(element, mix(element, 5) % (kMostDoublings + 1), values);
  for (double& v : values) v = static_cast<double>(1 << static_cast<int>(v));
}

void draw(const DataType& type, Op op, uint64_t element, Values& values) {
  const auto limit = static_cast<uint64_t>(type.exact);
  if (op == Op::kAvg) return draw_average(type, element, values);
  if (op == Op::kProd) {
    draw_product(element, values);
  } else if (op == Op::kMin || op == Op::kMax) {
    for (size_t r = 0; r < values.size(); ++r) {
      values[r] = static_cast<double>(mix(element, r) % (limit + 1));
    }
  } else {
    // A scalar of mulsum is at most 2.
    draw_sum(element, op == Op::kMulSum ? limit / 2 : limit, values);
  }
  if (!type.is_signed) return;
  for (size_t r = 0; r < values.size(); ++r) {
    if (values[r] != 0 && coin(element, r)) values[r] = -values[r];
  }
}

double reduce(Op op, const Values& values) {
  switch (op) {
    case Op::kMin:
      return *std::min_element(values.begin(), values.end());
    case Op::kMax:
      return *std::max_element(values.begin(), values.end());
    case Op::kProd: {
      double product = 1;
      for (double v : values) product *= v;
      return product;
    }
    default:
      break;
  }
  double sum = 0;
  for (size_t r = 0; r < values.size(); ++r) {
    sum += op == Op::kMulSum ? mulsum_scalar(static_cast<int>(r)) * values[r] : values[r];
  }
  return op == Op::kAvg ? sum / static_cast<double>(values.size()) : sum;
}

}  // namespace

Patterns::Patterns(ncclDataType_t type, Op op, int nranks) : inputs_(static_cast<size_t>(nranks)) {
  const DataType& info = data_type(type);
  for (auto& input : inputs_) input.resize(kPeriod * info.size);
  if (op == Op::kNone) {
    for (size_t r = 0; r < inputs_.size(); ++r) {
      for (size_t i = 0; i < kPeriod; ++i) {
        const uint64_t bits = mix(i, r, 3);
        std::memcpy(&inputs_[r][i * info.size], &bits, info.size);
      }
    }
    return;
  }
  reduced_.resize(kPeriod * info.size);
  Values values(inputs_.size());
  for (size_t i = 0; i < kPeriod; ++i) {
    draw(info, op, i, values);
    for (size_t r = 0; r < inputs_.size(); ++r) encode(type, values[r], &inputs_[r][i * info.size]);
    encode(type, reduce(op, values), &reduced_[i * info.size]);
  }
  // Dividing by a power of two is exact. Otherwise there are several right ways to apply 1/n.
  const bool exact_mean = std::has_single_bit(static_cast<unsigned>(nranks));
  if (op == Op::kAvg && info.is_float && !exact_mean) tolerance_ = info.epsilon;
}

}  // namespace weft::perf
