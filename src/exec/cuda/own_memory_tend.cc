// The background thread's part of own_memory.h. Calls of the driver that may take long are made
// without the lock, because launches take it.
#include <algorithm>
#include <bit>

#include "src/base/log.h"
#include "src/exec/cuda/own_memory.h"

namespace weft::cuda {
namespace {

constexpr std::chrono::hours kForGood{24 * 365};
constexpr size_t kMostRefused = 4096;

}  // namespace

// Only an allocation that is still the same is put on the board.
Shared OwnMemory::share_one(const Allocation& memory, uint64_t end, bool ours, bool kept) {
  {
    std::lock_guard lock(mutex_);
    const auto it = own_.find(memory.base);
    if (it != own_.end() && it->second.memory.id == memory.id) {
      Own& own = it->second;
      if (kept) own.registered++;
      own.ours |= ours;
      own.retiring = own.retiring && !own.is_kept();
      return own.retiring ? Shared::kLater : Shared::kYes;
    }
    if (!kept && !ours && memory.size < options_.least_bytes) return Shared::kNo;
    if (!kept && !ours && !make_room(memory.size)) return Shared::kLater;
  }
  BoardEntry entry;
  entry.base = memory.base;
  entry.size = memory.size;
  std::string why;
  Shared shared = driver_->share(memory, !kept, entry, why);
  if (shared == Shared::kYes && entry.region == 0 && memory.base + memory.size < end) {
    shared = Shared::kNo;
    why = "the buffer spans several allocations";
  }
  if (shared != Shared::kYes) {
    WEFT_INFO(kReg, "the memory at {:#x} stays private to this process: {}", memory.base, why);
    return shared;
  }
  if (driver_->id(memory.base) == memory.id) {
    std::lock_guard lock(mutex_);
    if (insert(memory, entry, ours, kept)) return Shared::kYes;
  }
  driver_->take_back(entry.descriptor);
  return Shared::kLater;
}

Shared OwnMemory::share(uint64_t begin, uint64_t end, bool ours,
                        std::vector<Allocation>* registered) {
  for (uint64_t next = begin; next < end;) {
    Allocation memory;
    if (!driver_->find(next, memory)) return Shared::kLater;  // freed meanwhile
    const Shared shared = share_one(memory, end, ours, registered != nullptr);
    if (shared != Shared::kYes) return shared;
    if (registered != nullptr) registered->push_back(memory);
    next = memory.base + memory.size;
  }
  return Shared::kYes;
}

// Region numbers are never given to another part of the address space.
uint64_t OwnMemory::region_of(uint64_t base) {
  const uint64_t part = base / kRegionBytes;
  const auto it = std::find(regions_.begin(), regions_.end(), part);
  if (it != regions_.end()) return static_cast<uint64_t>(it - regions_.begin()) + 1;
  if (regions_.size() == options_.regions) return 0;
  regions_.push_back(part);
  return regions_.size();
}

bool OwnMemory::insert(const Allocation& memory, BoardEntry entry, bool ours, bool kept) {
  const uint64_t end = memory.base + memory.size;
  // What overlaps with this allocation has been freed.
  for (auto it = own_.begin(); it != own_.end();) {
    const bool overlaps = it->first < end && memory.base < it->second.end();
    it = overlaps ? withdraw(it) : std::next(it);
  }
  const auto free = std::find(slots_.begin(), slots_.end(), false);
  if (free == slots_.end()) {
    WEFT_INFO(kReg, "{} allocations are shared: the one at {:#x} stays private", slots_.size(),
              memory.base);
    return false;
  }
  if (entry.region != 0) {
    entry.region = region_of(memory.base);
    if (entry.region == 0 || memory.base / kRegionBytes != (end - 1) / kRegionBytes) return false;
  }
  Own own;
  own.memory = memory;
  own.slot = static_cast<size_t>(free - slots_.begin());
  own.region = entry.region;
  own.descriptor = entry.descriptor;
  own.registered = kept ? 1 : 0;
  own.ours = ours;
  own.used = Clock::now();
  own.version = board_.publish(own.slot, entry);
  *free = true;
  own_[memory.base] = own;
  return true;
}

// Whether so many bytes may be shared besides. If not, memory that no call has used lately is given
// up. That takes until the launches so far have ended.
bool OwnMemory::make_room(uint64_t bytes) {
  uint64_t all = bytes;
  std::vector<Own*> idle;
  const auto now = Clock::now();
  size_t used = 0;
  for (auto& [base, own] : own_) {
    used++;
    if (own.is_kept()) continue;
    all += own.memory.size;
    if (!own.retiring && now - own.used > options_.idle) idle.push_back(&own);
  }
  if (all <= options_.most_bytes && used < slots_.size()) return true;
  if (mark_.load(std::memory_order_acquire) != Mark::kNone) return false;
  std::sort(idle.begin(), idle.end(), [](const Own* a, const Own* b) { return a->used < b->used; });
  for (Own* own : idle) {
    if (all <= options_.most_bytes && used < slots_.size()) break;
    own->retiring = true;
    all -= own->memory.size;
    used--;
  }
  if (!idle.empty()) mark_.store(Mark::kWanted, std::memory_order_release);
  return false;
}

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

// Memory that is freed is withdrawn, so that peers unmap it and the memory is free indeed.
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
bool OwnMemory::serve() {
  std::vector<Request> requests;
  {
    std::lock_guard lock(mutex_);
    requests = requests_;
  }
  for (const Request& request : requests) {
    const Shared shared = share(request.begin, request.end, request.ours, nullptr);
    std::lock_guard lock(mutex_);
    if (refused_.size() > kMostRefused) refused_.clear();
    if (shared == Shared::kNo) refused_[request.id] = Clock::now() + kForGood;
    if (shared == Shared::kLater) refused_[request.id] = Clock::now() + options_.idle;
  }
  bool waits = false;
  std::lock_guard lock(mutex_);
  requests_.erase(requests_.begin(), requests_.begin() + static_cast<ptrdiff_t>(requests.size()));
  for (auto& [base, own] : own_) {
    hear(own);
    const bool answered = std::popcount(own.mapped_by | own.refused_by) == nranks_ - 1;
    waits = waits || !answered;
    if (!answered || own.descriptor == 0) continue;
    driver_->take_back(own.descriptor);
    own.descriptor = 0;
  }
  return waits;
}

bool OwnMemory::tend() {
  sweep();
  const bool retires = finish_retiring();
  return serve() || retires;
}

}  // namespace weft::cuda
