// The two halves of an all_reduce are independent, so large ones are made in parallel.
#pragma once

#include <cstddef>
#include <future>

namespace weft {

// Calls both, with about this many transfers each. Rethrows their exceptions.
template <typename One, typename Other>
void in_parallel(size_t transfers, One&& one, Other&& other) {
  constexpr size_t kWorthAThread = 4096;
  auto policy = std::launch::deferred;
  if (transfers >= kWorthAThread)
    policy |= std::launch::async;  // deferred if no thread is
                                   // available
  auto beside = std::async(policy, one);
  other();
  beside.get();
}

}  // namespace weft
