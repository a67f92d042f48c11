// What a process has once, and what a forked child must not share with its parent. A child has no
// thread but the one that forked, and copies of all descriptors. It starts anew: descriptors are
// closed there, so that they do not hide the parent's death, and single objects are made again.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <new>

namespace weft {

// How many forks lie between this process and the first one. Objects of another number are the
// parent's.
int fork_generation();
namespace internal {
inline std::atomic<int> fork_generation{0};
}
// The same, if fork_generation() was called before in this process or its parents. One load: every
// call of the library asks.
inline int known_fork_generation() {
  return internal::fork_generation.load(std::memory_order_relaxed);
}

// Descriptors that a forked child closes. Thread-safe.
void own_descriptor(int fd) noexcept;
// False: this process does not own it (any more).
bool disown_descriptor(int fd) noexcept;

// A link in the list of what a forked child forgets.
class ForgottenByChildren {
 public:
  ForgottenByChildren();
  virtual void forget() noexcept = 0;
  ForgottenByChildren(const ForgottenByChildren&) = delete;
  ForgottenByChildren& operator=(const ForgottenByChildren&) = delete;

 protected:
  ~ForgottenByChildren() = default;

 private:
  friend void start_anew() noexcept;
  ForgottenByChildren* next_;
};

// An object that a process has once, made at the first use. It is never destroyed, because exit
// handlers and threads may need it. Has static storage.
template <typename T>
class PerProcess final : ForgottenByChildren {
 public:
  T& get() {
    Made* made = made_.load(std::memory_order_acquire);
    if (made != nullptr) return made->object;
    std::lock_guard lock(*mutex());
    made = made_.load(std::memory_order_acquire);
    if (made == nullptr) {
      made = std::make_unique<Made>().release();
      made->of_parent = of_parent_;
      made_.store(made, std::memory_order_release);
    }
    return made->object;
  }

 private:
  struct Made {
    T object;
    Made* of_parent = nullptr;
  };
  std::mutex* mutex() { return std::launder(reinterpret_cast<std::mutex*>(mutex_)); }
  // The parent's object stays in memory, in whatever state its threads left it. It stays reachable
  // too, so that a leak sanitizer knows that this is meant.
  void forget() noexcept override {
    new (mutex_) std::mutex;  // a thread of the parent may have held it
    if (Made* made = made_.exchange(nullptr)) of_parent_ = made;
  }

  alignas(std::mutex) std::byte mutex_[sizeof(std::mutex)] = {};
  [[maybe_unused]] std::mutex* const first_mutex_ = new (mutex_) std::mutex;
  std::atomic<Made*> made_{nullptr};
  Made* of_parent_ = nullptr;
};

}  // namespace weft
