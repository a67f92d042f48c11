// See fork.h.
#include "src/base/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <cstdint>

namespace weft {
namespace {

constexpr size_t kMostDescriptors = 1 << 20;  // more are not closed in children
// Pages that nobody touches cost nothing.
std::array<std::atomic<uint64_t>, kMostDescriptors / 64> owned;
std::atomic<ForgottenByChildren*> first{nullptr};

bool has_place(int fd) { return fd >= 0 && static_cast<size_t>(fd) < kMostDescriptors; }
uint64_t bit_of(int fd) { return uint64_t{1} << (fd % 64); }
std::atomic<uint64_t>& word_of(int fd) { return owned[static_cast<size_t>(fd) / 64]; }

}  // namespace

// In the child, which has only this thread.
void start_anew() noexcept {
  internal::fork_generation.fetch_add(1);
  for (size_t w = 0; w < owned.size(); w++) {
    const uint64_t bits = owned[w].load(std::memory_order_relaxed);
    if (bits == 0) continue;
    for (int b = 0; b < 64; b++)
      if ((bits >> b & 1) != 0) close(static_cast<int>(w) * 64 + b);
    owned[w].store(0, std::memory_order_relaxed);
  }
  for (ForgottenByChildren* one = first.load(); one != nullptr; one = one->next_) one->forget();
}

int fork_generation() {
  // Registered when the library is first used, not when it is loaded: most processes fork before.
  static const int registered = pthread_atfork(nullptr, nullptr, [] { start_anew(); });
  (void)registered;
  return known_fork_generation();
}

void own_descriptor(int fd) noexcept {
  if (has_place(fd)) word_of(fd).fetch_or(bit_of(fd), std::memory_order_relaxed);
}

bool disown_descriptor(int fd) noexcept {
  if (!has_place(fd)) return true;
  return (word_of(fd).fetch_and(~bit_of(fd), std::memory_order_relaxed) & bit_of(fd)) != 0;
}

// Function-local ones may be made by several threads at once.
ForgottenByChildren::ForgottenByChildren() : next_(first.load()) {
  while (!first.compare_exchange_weak(next_, this)) {
  }
}

}  // namespace weft
