// See kernel_events.h.
#include "src/comm/profiler/kernel_events.h"

#include "src/comm/profiler/profiler.h"

namespace weft {
namespace {

constexpr double kLookEveryS = 0.0005;

}  // namespace

KernelEvents::~KernelEvents() {
  timer_.reset();
  for (Kernel& kernel : kernels_)
    if (!report(kernel) && kernel.event != nullptr) profiler_.stop_event(kernel.event);
}

void KernelEvents::expect(void* parent, const KernelTimes& times) {
  std::lock_guard lock(mutex_);
  kernels_.push_back({parent, times, nullptr, false});
  if (timer_ != nullptr) return;
  timer_ = std::make_unique<Timer>([this] { look(); });
  timer_->every(kLookEveryS);
}

void KernelEvents::look() {
  std::lock_guard lock(mutex_);
  std::erase_if(kernels_, [this](Kernel& kernel) { return report(kernel); });
}

bool KernelEvents::report(Kernel& kernel) const {
  const uint64_t begin = KernelTimes::read(kernel.times.begin);
  if (begin == 0) return false;
  if (!kernel.begun) {
    kernel.begun = true;
    kernel.event = profiler_.start_event(
        {.kind = profiler_abi::kKernelCh, .parent = kernel.parent, .gpu_time = begin});
  }
  const uint64_t end = KernelTimes::read(kernel.times.end);
  if (end == 0) return false;
  if (kernel.event != nullptr) {
    profiler_.record(kernel.event, profiler_abi::kKernelChStop, {.gpu_time = end});
    profiler_.stop_event(kernel.event);
  }
  return true;
}

}  // namespace weft
