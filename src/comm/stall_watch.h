// Warns when a kernel or stream waits long for a peer, and lets ranks compare their calls. Kernels
// report long waits. The calling thread cannot do it, because it does not wait for kernels.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/exec/cuda/gpu_executor.h"
#include "src/transport/timer.h"

namespace weft {

class StallWatch {
 public:
  // The control thread calls `long_wait` every second, or several times within `warning_s` seconds
  // (0: no warning). It calls `compare` when a wait has lasted for a second, and each time it has
  // lasted twice as long.
  StallWatch(std::string label, double warning_s, std::function<cuda::LongWait()> long_wait,
             std::function<void()> compare);

 private:
  void look();

  const std::string label_;
  const double warning_s_;
  const std::function<cuda::LongWait()> long_wait_;
  const std::function<void()> compare_;
  // Control thread only.
  double seen_s_ = 0;  // the length of the last reported wait
  bool warned_ = false;
  double compare_s_;              // the next time to compare
  std::unique_ptr<Timer> timer_;  // destroyed first: it uses the members above
};

}  // namespace weft
