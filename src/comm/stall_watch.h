// Says when kernels wait for a peer for long. They tell now and then for whom; nobody else sees it,
// because the host is elsewhere meanwhile.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "src/base/handles.h"

namespace weft {

class StallWatch {
 public:
  // `waits_for`: describes whom something has waited for since the last time it was asked; "":
  // nobody. Asked by the control thread, several times within `warning_s` seconds.
  StallWatch(std::string label, double warning_s, std::function<std::string()> waits_for);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  void look();

  const std::string label_;
  const double warning_s_;
  const std::function<std::string()> waits_for_;
  const Fd timer_;
  // Control thread only.
  Clock::time_point since_, seen_;
  bool waiting_ = false, warned_ = false;
};

}  // namespace weft
