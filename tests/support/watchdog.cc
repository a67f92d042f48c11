// The watching thread.
#include "tests/support/watchdog.h"

#include <unistd.h>

#include <cstdio>

#include "tests/support/sampling.h"

namespace weft::test {

Watchdog::Watchdog(int nranks, std::chrono::milliseconds limit)
    : last_(std::chrono::steady_clock::now()), doing_(static_cast<size_t>(nranks), "start") {
  // patience() reads the environment. The thread must not read it, because a test may change it.
  thread_ = std::thread([this, limit = patience(limit)] { watch(limit); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Watchdog::note(int rank, std::string what) {
  const std::lock_guard lock(mutex_);
  doing_[static_cast<size_t>(rank)] = std::move(what);
  last_ = std::chrono::steady_clock::now();
}

void Watchdog::watch(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  while (!done_) {
    wake_.wait_until(lock, last_ + limit);
    if (done_ || std::chrono::steady_clock::now() < last_ + limit) continue;
    std::fprintf(stderr, "[   HANG   ] nothing happened for %lld ms:\n",
                 static_cast<long long>(limit.count()));
    for (size_t r = 0; r < doing_.size(); ++r) {
      std::fprintf(stderr, "[   HANG   ]   rank %zu: %s\n", r, doing_[r].c_str());
    }
    std::fflush(nullptr);
    _exit(86);
  }
}

}  // namespace weft::test
