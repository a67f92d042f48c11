// See stripes.h.
#include "plugins/net_socket/stripes.h"

#include <algorithm>

namespace weft::net_socket {

uint32_t StripeChoice::choose(uint64_t bytes) {
  const uint32_t wanted = fixed_ ? most_ : current_;
  if (wanted == 1 || bytes < 2 * kLeastBytes) return 1;
  return static_cast<uint32_t>(std::min<uint64_t>(wanted, bytes / kLeastBytes));
}

void StripeChoice::sent(uint64_t bytes, uint32_t stripes) {
  if (fixed_ || most_ == 1 || bytes < 2 * kLeastBytes) return;
  const auto now = Clock::now();
  const double gap = std::chrono::duration<double>(now - last_).count();
  last_ = now;
  if (settled_) {
    // Conditions change: try again after 1000 times a trial's data.
    settled_bytes_ += bytes;
    if (settled_bytes_ < 1000 * kTrialBytes) return;
    settled_ = false;
    settled_bytes_ = 0;
    trial_ = 0;
    current_ = 1;
    return;
  }
  // Belongs to the previous trial.
  if (stripes != current_ && stripes != bytes / kLeastBytes) return;
  if (gap > 0.01) return;  // the application paused; says nothing about the network
  trial_bytes_ += bytes;
  busy_seconds_ += gap;
  if (trial_bytes_ < kTrialBytes) return;
  rates_[static_cast<size_t>(trial_)] = static_cast<double>(trial_bytes_) / busy_seconds_;
  trial_bytes_ = 0;
  busy_seconds_ = 0;
  trial_++;
  current_ *= 2;
  if (current_ <= most_ && trial_ < static_cast<int>(rates_.size())) return;
  const auto best = std::max_element(rates_.begin(), rates_.begin() + trial_) - rates_.begin();
  current_ = 1u << best;
  settled_ = true;
}

}  // namespace weft::net_socket
