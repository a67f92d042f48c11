// Events of kernels (KernelCh) for the profiler plugin, with the GPU's times. A plugin hears of a
// kernel shortly after it began.
#pragma once

#include <list>
#include <memory>
#include <mutex>

#include "src/exec/kernel_times.h"
#include "src/transport/timer.h"

namespace weft {

class Profiler;

// Thread-safe. The plugin is called on the control thread.
class KernelEvents {
 public:
  explicit KernelEvents(const Profiler& profiler) : profiler_(profiler) {}
  // Kernels that have not ended are reported as ended now.
  ~KernelEvents();
  KernelEvents(const KernelEvents&) = delete;
  KernelEvents& operator=(const KernelEvents&) = delete;

  // `parent`: the event of its call.
  void expect(void* parent, const KernelTimes& times);

 private:
  struct Kernel {
    void* parent = nullptr;
    KernelTimes times;
    void* event = nullptr;
    bool begun = false;
  };
  void look();
  // True: it has ended.
  bool report(Kernel& kernel) const;

  const Profiler& profiler_;
  std::mutex mutex_;
  std::list<Kernel> kernels_;
  std::unique_ptr<Timer> timer_;  // from the first kernel on
};

}  // namespace weft
