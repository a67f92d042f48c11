// Runs independent pieces of work on as many threads as the caller may use cores. For set-up and
// tools, never inside a call.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace weft {

// How many cores the calling thread may use.
inline int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

// Each thread calls `make_worker()` once. The result does a piece, given its number. The lowest
// numbers begin first. Returns when all pieces are done. If a piece throws, no more pieces begin,
// and the first exception is rethrown.
template <typename MakeWorker>
void parallel_for(size_t pieces, const MakeWorker& make_worker) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      auto worker = make_worker();
      for (size_t i = next.fetch_add(1); i < pieces; i = next.fetch_add(1)) worker(i);
    } catch (...) {
      next.store(pieces);
      std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  try {
    for (size_t t = 1; t < std::min<size_t>(pieces, static_cast<size_t>(usable_cores())); t++)
      others.emplace_back(work);
  } catch (const std::system_error&) {
    // No more threads are available. The existing ones do the work.
  }
  if (pieces > 0) work();
  for (std::thread& other : others) other.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace weft
