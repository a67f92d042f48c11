// The two halves of an all_reduce know nothing of each other, so they are made side by side where
// they are large.
#pragma once

#include <cstddef>
#include <future>

namespace weft {

// Calls both, of so many transfers each; what they throw comes out.
template <typename One, typename Other>
void in_parallel(size_t transfers, One&& one, Other&& other) {
  constexpr size_t kWorthAThread = 4096;
  auto policy = std::launch::deferred;
  if (transfers >= kWorthAThread) policy |= std::launch::async;  // deferred if there is no thread
  auto beside = std::async(policy, one);
  other();
  beside.get();
}

}  // namespace weft
