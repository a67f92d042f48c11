// Puts allocations on the board, see own_memory.h. Runs on the thread that calls. The driver is
// asked without the lock, because the background thread takes it.
#include <algorithm>

#include "src/base/log.h"
#include "src/exec/cuda/own_memory.h"

namespace weft::cuda {

// False: the allocation is not on the board.
bool OwnMemory::join(const Allocation& memory, bool ours, bool kept, Shared& shared) {
  const auto it = own_.find(memory.base);
  if (it == own_.end() || it->second.memory.id != memory.id) return false;
  Own& own = it->second;
  if (kept) own.registered++;
  own.ours |= ours;
  own.retiring = own.retiring && !own.is_kept();
  shared = own.retiring ? Shared::kLater : Shared::kYes;
  return true;
}

// `most`: so many more may be put on the board.
Shared OwnMemory::share_one(const Allocation& memory, uint64_t begin, uint64_t end, bool ours,
                            bool kept, int& most) {
  Shared shared = Shared::kLater;
  {
    std::lock_guard lock(mutex_);
    if (join(memory, ours, kept, shared)) return shared;
    if (!kept && !ours && memory.size < options_.least_bytes) return Shared::kNo;
    if (!kept && !ours && !make_room(memory.size)) return Shared::kLater;
  }
  BoardEntry entry;
  entry.base = memory.base;
  entry.size = memory.size;
  std::string why;
  shared = driver_->share(memory, !kept, entry, why);
  if (shared == Shared::kYes && entry.region == 0 && memory.base + memory.size < end) {
    shared = Shared::kNo;
    why = "the buffer spans several allocations";
  }
  if (shared != Shared::kYes) {
    WEFT_INFO(kReg, "the memory at {:#x} stays private to this process: {}", memory.base, why);
    return shared;
  }
  // NICs use no buffers that span several allocations.
  const bool whole = memory.base <= begin && end <= memory.base + memory.size;
  std::optional<Fd> dma_buf;
  if (nics_ != nullptr && whole) dma_buf = driver_->dma_buf(memory);
  {
    std::lock_guard lock(mutex_);
    most--;
    // Another thread may have put it there meanwhile.
    if (!join(memory, ours, kept, shared)) {
      if (insert(memory, entry, std::move(dma_buf), ours, kept)) return Shared::kYes;
      shared = Shared::kLater;
    }
  }
  driver_->take_back(entry.descriptor);
  return shared;
}

Shared OwnMemory::share(uint64_t begin, uint64_t end, bool ours,
                        std::vector<Allocation>* registered, int most) {
  for (uint64_t next = begin; next < end && most > 0;) {
    Allocation memory;
    if (!driver_->find(next, memory)) return Shared::kLater;
    const Shared shared = share_one(memory, begin, end, ours, registered != nullptr, most);
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

bool OwnMemory::insert(const Allocation& memory, BoardEntry entry, std::optional<Fd> dma_buf,
                       bool ours, bool kept) {
  const uint64_t end = memory.base + memory.size;
  // What overlaps with this allocation has been freed.
  auto old = at(memory.base);
  if (old == own_.end()) old = own_.lower_bound(memory.base);
  while (old != own_.end() && old->first < end) old = withdraw(old);
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
  if (dma_buf)
    own.nic =
        nics_->put(reinterpret_cast<std::byte*>(memory.base), memory.size, std::move(*dma_buf));
  own.version = board_.publish(own.slot, entry);
  *free = true;
  own_[memory.base] = own;
  changed();
  return true;
}

// Whether so many bytes may be shared besides. If not, memory that no call has used lately is given
// up. That takes until the launches so far have ended.
bool OwnMemory::make_room(uint64_t bytes) {
  for (const Known& known : known_) {
    const auto it = own_.find(known.at);
    if (it != own_.end() && it->second.memory.id == known.id)
      it->second.used = std::max(it->second.used, known.used);
  }
  uint64_t all = bytes;
  std::vector<Own*> idle;
  size_t used = 0;
  for (auto& [base, own] : own_) {
    used++;
    if (own.is_kept()) continue;
    all += own.memory.size;
    if (!own.retiring && now_ - own.used > options_.idle) idle.push_back(&own);
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
  if (idle.empty()) return false;
  changed();
  mark_.store(Mark::kWanted, std::memory_order_release);
  return false;
}

}  // namespace weft::cuda
