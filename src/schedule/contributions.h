// Sets of ranks, interned: equal sets have equal numbers, and a union is looked up once.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

namespace weft {

// Used by verify() alone, from one thread.
class Contributions {
 public:
  explicit Contributions(int nranks) : words_((static_cast<size_t>(nranks) + 63) / 64) {
    std::vector<uint64_t> all(words_, 0);
    for (int r = 0; r < nranks; r++) {
      std::vector<uint64_t> one(words_, 0);
      set(one, r);
      set(all, r);
      intern(one);  // the set {r} has number r
    }
    everyone_ = intern(all);
  }

  static int32_t only(int rank) { return rank; }
  int32_t everyone() const { return everyone_; }

  // The union, or -1 when the sets share a rank: its contribution would count twice.
  int32_t unite(int32_t a, int32_t b) {
    if (a > b) std::swap(a, b);
    const uint64_t key = (static_cast<uint64_t>(a) << 32) | static_cast<uint32_t>(b);
    auto [it, inserted] = unions_.try_emplace(key, -1);
    if (!inserted) return it->second;
    std::vector<uint64_t> sum(words_);
    for (size_t w = 0; w < words_; w++) {
      const uint64_t x = sets_[static_cast<size_t>(a)][w], y = sets_[static_cast<size_t>(b)][w];
      if (x & y) return -1;
      sum[w] = x | y;
    }
    const int32_t number = intern(sum);
    unions_[key] = number;
    return number;
  }

  // The lowest rank that is in one set but not in the other; -1 when they are equal.
  int first_difference(int32_t a, int32_t b) const {
    for (size_t w = 0; w < words_; w++) {
      const uint64_t diff = sets_[static_cast<size_t>(a)][w] ^ sets_[static_cast<size_t>(b)][w];
      if (diff != 0) return static_cast<int>(w) * 64 + __builtin_ctzll(diff);
    }
    return -1;
  }

 private:
  static void set(std::vector<uint64_t>& words, int rank) {
    words[static_cast<size_t>(rank) / 64] |= uint64_t{1} << (rank % 64);
  }
  int32_t intern(const std::vector<uint64_t>& words) {
    auto [it, inserted] = numbers_.try_emplace(words, static_cast<int32_t>(sets_.size()));
    if (inserted) sets_.push_back(words);
    return it->second;
  }

  size_t words_;
  int32_t everyone_ = 0;
  std::vector<std::vector<uint64_t>> sets_;
  std::map<std::vector<uint64_t>, int32_t> numbers_;
  std::unordered_map<uint64_t, int32_t> unions_;
};

}  // namespace weft
