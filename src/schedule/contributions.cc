// See contributions.h.
#include "src/schedule/contributions.h"

#include <algorithm>

namespace weft {

int32_t Contributions::allocate() {
  if (!free_.empty()) {
    const int32_t set = free_.back();
    free_.pop_back();
    std::fill_n(bits_.begin() + static_cast<std::ptrdiff_t>(index(set) * words_), words_, 0);
    sums_[index(set)] = {1, 0};
    return set;
  }
  sums_.push_back({1, 0});
  bits_.resize(bits_.size() + words_);
  return nranks_ + static_cast<int32_t>(sums_.size());
}

int32_t Contributions::add(int32_t a, int32_t b) {
  if (a == nranks_ || b == nranks_) return -1;  // all ranks overlap with any set
  const auto single = [&](int32_t set) { return set < nranks_; };
  if (single(a) ? has(b, a) : single(b) && has(a, b)) return -1;
  if (!single(a) && !single(b))
    for (size_t w = 0; w < words_; w++)
      if ((word(a, w) & word(b, w)) != 0) return -1;
  int32_t sum = a;
  if (single(a) || sums_[index(a)].references > 1) {
    sum = allocate();
    if (single(a)) {
      bits_[index(sum) * words_ + static_cast<size_t>(a) / 64] |= uint64_t{1} << (a % 64);
    } else {
      std::copy_n(bits_.begin() + static_cast<std::ptrdiff_t>(index(a) * words_), words_,
                  bits_.begin() + static_cast<std::ptrdiff_t>(index(sum) * words_));
    }
    sums_[index(sum)].size = single(a) ? 1 : sums_[index(a)].size;
    release(a);
  }
  uint64_t* bits = &bits_[index(sum) * words_];
  if (single(b)) {
    bits[static_cast<size_t>(b) / 64] |= uint64_t{1} << (b % 64);
  } else {
    for (size_t w = 0; w < words_; w++) bits[w] |= word(b, w);
  }
  int32_t& size = sums_[index(sum)].size;
  size += single(b) ? 1 : sums_[index(b)].size;
  if (size < nranks_) return sum;
  release(sum);
  return nranks_;
}

int Contributions::first_common(int32_t a, int32_t b) const {
  for (int r = 0; r < nranks_; r++)
    if (has(a, r) && has(b, r)) return r;
  return -1;
}

int Contributions::first_difference(int32_t a, int32_t b) const {
  for (int r = 0; r < nranks_; r++)
    if (has(a, r) != has(b, r)) return r;
  return -1;
}

}  // namespace weft
