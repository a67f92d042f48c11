// Warns when a kernel or stream waits long for a peer. Kernels report long waits. The calling
// thread cannot warn, because it does not wait for kernels.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/exec/cuda/gpu_executor.h"
#include "src/transport/timer.h"

namespace weft {

class StallWatch {
 public:
  // The control thread calls `long_wait` several times within `warning_s` seconds.
  StallWatch(std::string label, double warning_s, std::function<cuda::LongWait()> long_wait);

 private:
  void look();

  const std::string label_;
  const double warning_s_;
  const std::function<cuda::LongWait()> long_wait_;
  // Control thread only.
  double seen_s_ = 0;  // the length of the last reported wait
  bool warned_ = false;
  std::unique_ptr<Timer> timer_;  // destroyed first: it uses the members above
};

}  // namespace weft
