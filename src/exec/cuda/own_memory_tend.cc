// The background thread's part of own_memory.h.
#include <algorithm>

#include "src/exec/cuda/own_memory.h"

namespace weft::cuda {

bool OwnMemory::finish_retiring() {
  if (mark_.load(std::memory_order_acquire) != Mark::kSet) return false;
  if (!driver_->reached()) return true;
  std::lock_guard lock(mutex_);
  for (auto it = own_.begin(); it != own_.end();) {
    const bool gone = it->second.retiring && it->second.registered == 0;
    it->second.retiring = false;
    it = gone ? withdraw(it) : std::next(it);
  }
  mark_.store(Mark::kNone, std::memory_order_release);
  return false;
}

// Memory that is freed is withdrawn, so that peers unmap it and the memory is free indeed. Queries
// are made without the lock, because launches take it.
void OwnMemory::sweep() {
  std::vector<Allocation> all;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [base, own] : own_)
      if (own.registered == 0) all.push_back(own.memory);
  }
  std::erase_if(all, [&](const Allocation& a) { return driver_->id(a.base) == a.id; });
  std::lock_guard lock(mutex_);
  for (const Allocation& freed : all) {
    const auto it = own_.find(freed.base);
    if (it != own_.end() && it->second.memory.id == freed.id && it->second.registered == 0)
      withdraw(it);
  }
}

// True: some peer has not answered yet.
bool OwnMemory::hear_all() {
  bool waits = false;
  std::lock_guard lock(mutex_);
  for (auto& [base, own] : own_) {
    if (!own.answered) hear(own);
    waits = waits || !own.answered;
    if (!own.answered || own.descriptor == 0) continue;
    driver_->take_back(own.descriptor);
    own.descriptor = 0;
  }
  if (nics_ != nullptr) waits = nics_->tidy() || waits;
  return waits;
}

bool OwnMemory::tend() {
  sweep();
  const bool retires = finish_retiring();
  return hear_all() || retires;
}

}  // namespace weft::cuda
