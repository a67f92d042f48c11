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
    T* object = object_.load(std::memory_order_acquire);
    if (object != nullptr) return *object;
    std::lock_guard lock(*mutex());
    object = object_.load(std::memory_order_acquire);
    if (object == nullptr) {
      object = std::make_unique<T>().release();
      object_.store(object, std::memory_order_release);
    }
    return *object;
  }

 private:
  std::mutex* mutex() { return std::launder(reinterpret_cast<std::mutex*>(mutex_)); }
  // The parent's object stays in memory, in whatever state its threads left it.
  void forget() noexcept override {
    new (mutex_) std::mutex;  // a thread of the parent may have held it
    object_.store(nullptr, std::memory_order_release);
  }

  alignas(std::mutex) std::byte mutex_[sizeof(std::mutex)] = {};
  [[maybe_unused]] std::mutex* const made_ = new (mutex_) std::mutex;
  std::atomic<T*> object_{nullptr};
};

}  // namespace weft
