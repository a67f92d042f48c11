// Runs pieces of work on a few threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace weft::test {

// Calls work(i) for every i below `count`, `jobs` at a time. Returns when all have returned.
inline void run_jobs(size_t count, int jobs, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  const auto loop = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> workers;
  for (int j = 1; j < jobs; j++) workers.emplace_back(loop);
  loop();
  for (std::thread& worker : workers) worker.join();
}

}  // namespace weft::test
