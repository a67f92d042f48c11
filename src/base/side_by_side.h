// Work that consists of independent pieces, done by as many threads as this one has cores. For
// set-up and tools, never inside a call.
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

// `make_worker()` is called once by each thread and returns what does a piece, by its number; the
// lowest numbers begin first. Returns when all are done, and throws what the first one threw that
// failed; others are not begun then.
template <typename MakeWorker>
void side_by_side(size_t pieces, const MakeWorker& make_worker) {
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
    // No more threads to be had: those there are do it.
  }
  if (pieces > 0) work();
  for (std::thread& other : others) other.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace weft
