// How many sockets a message is spread over. Trials on the messages themselves find the best rate.
// Only the sender decides; frames tell the receiver.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace weft::net_socket {

// One thread at a time.
class StripeChoice {
 public:
  static constexpr uint64_t kLeastBytes = 64u << 10;  // per stripe
  static constexpr uint64_t kTrialBytes = 64u << 20;  // bytes of messages per trial

  // fixed: the user set the number of sockets, and all are used.
  StripeChoice(uint32_t most, bool fixed) : most_(most), fixed_(fixed) {}

  uint32_t choose(uint64_t bytes);
  void sent(uint64_t bytes, uint32_t stripes);

 private:
  using Clock = std::chrono::steady_clock;

  const uint32_t most_;
  const bool fixed_;
  uint32_t current_ = 1;
  int trial_ = 0;  // 0, 1, 2: trial with one, two, four ... sockets; then settled
  bool settled_ = false;
  std::array<double, 8> rates_{};
  uint64_t trial_bytes_ = 0, settled_bytes_ = 0;
  double busy_seconds_ = 0;
  Clock::time_point last_{};
};

}  // namespace weft::net_socket
