// Sets of ranks whose contributions a chunk holds, counted by reference. A partial sum is freed
// when no chunk holds it any more, so rings of a thousand ranks fit in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

// Only verify() uses it, from one thread. A set is a number: 0 to n-1 is that rank alone, n is all
// ranks. Only sums of several ranks are stored.
class Contributions {
 public:
  explicit Contributions(int nranks)
      : nranks_(nranks), words_((static_cast<size_t>(nranks) + 63) / 64) {}

  static int32_t only(int rank) { return rank; }
  int32_t everyone() const { return nranks_ == 1 ? 0 : nranks_; }

  void retain(int32_t set) {
    if (set > nranks_) sums_[index(set)].references++;
  }
  void release(int32_t set) {
    if (set > nranks_ && --sums_[index(set)].references == 0) free_.push_back(set);
  }

  // The union. Takes over the caller's reference to `a` and gives one to the result. Returns -1 if
  // the sets share a rank, because its contribution would count twice; then `a` stays the caller's.
  int32_t add(int32_t a, int32_t b);

  bool has(int32_t set, int rank) const {
    if (set < nranks_) return set == rank;
    return set == nranks_ || (word(set, static_cast<size_t>(rank) / 64) >> (rank % 64) & 1) != 0;
  }
  // The lowest rank that is in both sets, or in one but not in the other; -1 if there is none.
  int first_common(int32_t a, int32_t b) const;
  int first_difference(int32_t a, int32_t b) const;

  size_t bytes() const { return bits_.size() * sizeof(uint64_t); }

 private:
  struct Sum {
    int32_t references = 0, size = 0;
  };
  size_t index(int32_t set) const { return static_cast<size_t>(set - nranks_ - 1); }
  uint64_t word(int32_t set, size_t w) const { return bits_[index(set) * words_ + w]; }
  int32_t allocate();

  const int32_t nranks_;
  const size_t words_;
  std::vector<Sum> sums_;
  std::vector<uint64_t> bits_;
  std::vector<int32_t> free_;
};

}  // namespace weft
