// Says when something on a GPU waits for a peer for long. It tells now and then for whom; nobody
// else sees it, because the host is elsewhere meanwhile.
#pragma once

#include <functional>
#include <string>

#include "src/base/handles.h"
#include "src/exec/cuda/gpu_executor.h"

namespace weft {

class StallWatch {
 public:
  // `long_wait` is asked by the control thread, several times within `warning_s` seconds.
  StallWatch(std::string label, double warning_s, std::function<cuda::LongWait()> long_wait);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

 private:
  void look();

  const std::string label_;
  const double warning_s_;
  const std::function<cuda::LongWait()> long_wait_;
  const Fd timer_;
  // Control thread only.
  double seen_s_ = 0;  // how long the last wait was that it heard of
  bool warned_ = false;
};

}  // namespace weft
