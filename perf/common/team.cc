// Barriers and reductions combine threads first. Then thread 0 combines processes.
#include "perf/common/team.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <thread>

#include "perf/common/errors.h"

namespace weft::perf {

Team::Team(Process& process, int threads)
    : process_(process), local_(threads), values_(static_cast<size_t>(threads)) {}

void Team::run(const std::function<void(int)>& work) {
  const auto guarded = [&](int thread) {
    try {
      work(thread);
    } catch (const UsageError& error) {
      process_.fail(kExitUsage, error.what());
    } catch (const std::exception& error) {
      process_.fail(kExitLibrary, "thread " + std::to_string(thread) + ": " + error.what());
    }
  };
  std::vector<std::jthread> others;
  for (int t = 1; t < threads(); ++t) others.emplace_back(guarded, t);
  guarded(0);
}

void Team::barrier(int thread) {
  local_.arrive_and_wait();
  if (process_.size() == 1) return;
  if (thread == 0) process_.barrier();
  local_.arrive_and_wait();
}

double Team::combine(int thread, double value, Combine how) {
  values_[static_cast<size_t>(thread)] = value;
  local_.arrive_and_wait();
  if (thread == 0) {
    double local = values_[0];
    if (how == Combine::kMin) local = *std::min_element(values_.begin(), values_.end());
    if (how == Combine::kMax) local = *std::max_element(values_.begin(), values_.end());
    if (how == Combine::kSum || how == Combine::kMean) {
      local = std::accumulate(values_.begin(), values_.end(), 0.0);
    }
    if (how == Combine::kMean) local /= static_cast<double>(values_.size());
    combined_ = process_.combine(local, how);
  }
  local_.arrive_and_wait();
  return combined_;
}

}  // namespace weft::perf
