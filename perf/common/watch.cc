// The watching thread wakes once a second while a row runs.
#include "perf/common/watch.h"

#include <cstdio>

namespace weft::perf {
namespace {

constexpr auto kSlow = std::chrono::seconds(2);
constexpr auto kTick = std::chrono::seconds(1);

}  // namespace

Watch::Watch(bool show_progress, int timeout_s, std::function<void(const std::string&)> on_timeout)
    : show_progress_(show_progress), timeout_(timeout_s), on_timeout_(std::move(on_timeout)) {
  if (!show_progress && timeout_s == 0) return;
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

Watch::~Watch() { end(); }

void Watch::begin(std::string what) {
  std::lock_guard lock(mutex_);
  what_ = std::move(what);
  began_ = Clock::now();
  changed_.notify_all();
}

void Watch::end() {
  std::lock_guard lock(mutex_);
  what_.clear();
  if (line_shown_) std::fputs("\r\033[K", stderr);
  line_shown_ = false;
}

void Watch::watch(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (what_.empty()) {
      changed_.wait(lock, stop, [this] { return !what_.empty(); });
      continue;
    }
    const auto elapsed = Clock::now() - began_;
    if (timeout_.count() > 0 && elapsed >= timeout_) {
      on_timeout_(what_);
      return;
    }
    if (show_progress_ && elapsed >= kSlow) {
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(elapsed).count();
      std::fprintf(stderr, "\r\033[K# %s: %lld s", what_.c_str(), static_cast<long long>(seconds));
      line_shown_ = true;
    }
    changed_.wait_for(lock, stop, kTick, [this] { return what_.empty(); });
  }
}

}  // namespace weft::perf
