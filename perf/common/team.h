// The threads of this process, in step with each other and with all other processes.
#pragma once

#include <barrier>
#include <functional>
#include <vector>

#include "perf/common/process.h"

namespace weft::perf {

class Team {
 public:
  Team(Process& process, int threads);

  int threads() const { return static_cast<int>(values_.size()); }
  // Runs work(thread) in every thread. Thread 0 is the caller. An exception ends the job.
  void run(const std::function<void(int)>& work);

  // All threads of all processes must call these in the same order.
  void barrier(int thread);
  double combine(int thread, double value, Combine how);

 private:
  Process& process_;
  std::barrier<> local_;
  std::vector<double> values_;
  double combined_ = 0;
};

}  // namespace weft::perf
