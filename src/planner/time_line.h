// How long a plan takes by size, from measurements at init. Plain data and pure functions.
#pragma once

#include <cstddef>
#include <optional>

namespace weft {

// Two sizes make a line: time = fixed + bytes * slope.
struct TimeLine {
  static constexpr size_t kSmall = size_t{1} << 20, kLarge = size_t{8} << 20;  // bytes
  double small = 0, large = 0;                                                 // seconds

  double at(size_t bytes) const {
    const double slope = (large - small) / static_cast<double>(kLarge - kSmall);
    return small + slope * (static_cast<double>(bytes) - static_cast<double>(kSmall));
  }
};

// The smallest size, of at least `least`, from which `other` takes less than `share` of the usual
// time; nothing: it does not even at kLarge.
inline std::optional<size_t> faster_from(const TimeLine& usual, const TimeLine& other, double share,
                                         size_t least) {
  if (other.large > share * usual.large) return std::nullopt;
  size_t from = TimeLine::kLarge;
  while (from > least && other.at(from / 2) < share * usual.at(from / 2)) from /= 2;
  return from;
}

}  // namespace weft
