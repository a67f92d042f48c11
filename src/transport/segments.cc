// See segments.h.
#include "src/transport/segments.h"

#include <fcntl.h>
#include <linux/falloc.h>

#include <cerrno>
#include <memory>

#include "src/base/error.h"
#include "src/base/fork.h"
#include "src/base/log.h"
#include "src/base/siphash.h"
#include "src/transport/segment_registrations.h"

namespace weft {

Segments& Segments::instance() {
  static PerProcess<Segments> segments;
  return segments.get();
}

Segments::Segments() {
  fill_random(&next_id_, sizeof next_id_);
  next_id_ |= 1;  // odd, in steps of two: never 0; ids of other processes do not matter
}

void* Segments::allocate(size_t size) {
  const size_t rounded = (std::max<size_t>(size, 1) + 4095) / 4096 * 4096;
  Fd fd = make_memfd("weft-memory", rounded);
  void* base = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) fail_errno(errno, "ncclMemAlloc: cannot map {} bytes", rounded);
  std::lock_guard lock(mutex_);
  const size_t used = used_.load(std::memory_order_relaxed);
  size_t n = 0;
  while (n < used && slots_[n].base.load(std::memory_order_relaxed) != 0) n++;
  if (n == kSlots) {
    munmap(base, rounded);
    fail(ncclSystemError, "ncclMemAlloc: {} allocations are alive, no more fit in the table",
         kSlots);
  }
  Slot& slot = slots_[n];
  slot.fd = std::move(fd);
  slot.id.store(next_id_, std::memory_order_release);
  next_id_ += 2;
  slot.size.store(rounded, std::memory_order_release);
  slot.base.store(reinterpret_cast<uintptr_t>(base), std::memory_order_release);
  if (n == used) used_.store(used + 1, std::memory_order_release);
  return base;
}

Segments::Taken Segments::take(const void* pointer) {
  Taken taken;
  const auto base = reinterpret_cast<uintptr_t>(pointer);
  std::lock_guard lock(mutex_);
  for (size_t n = 0; n < used_.load(std::memory_order_relaxed); n++) {
    Slot& slot = slots_[n];
    if (slot.base.load(std::memory_order_relaxed) != base || base == 0) continue;
    taken.size = slot.size.load(std::memory_order_relaxed);
    taken.id = slot.id.load(std::memory_order_relaxed);
    taken.fd = std::move(slot.fd);
    slot.base.store(0, std::memory_order_release);
    slot.id.store(0, std::memory_order_release);
    releases_.fetch_add(1, std::memory_order_release);
    return taken;
  }
  return taken;
}

bool Segments::release(void* pointer) {
  const Taken taken = take(pointer);
  if (taken.id == 0) return false;
  // NICs may have pinned the pages. Some plugins keep registrations by address: if one outlived the
  // mapping, other memory at this address would be sent from the old pages.
  SegmentRegistrations::forget(taken.id);
  // Peers may keep their mapping as long as their communicator. This returns the pages now.
  fallocate(taken.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
            static_cast<off_t>(taken.size));
  munmap(pointer, taken.size);
  return true;
}

std::span<std::byte> Segments::view(uint64_t id) noexcept {
  std::lock_guard lock(mutex_);
  for (size_t n = 0; n < used_.load(std::memory_order_relaxed); n++) {
    const Slot& slot = slots_[n];
    if (slot.id.load(std::memory_order_relaxed) == id && id != 0)
      return {reinterpret_cast<std::byte*>(slot.base.load(std::memory_order_relaxed)),
              slot.size.load(std::memory_order_relaxed)};
  }
  return {};
}

SegmentRef Segments::find(const void* pointer, size_t size) const noexcept {
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  const size_t used = used_.load(std::memory_order_acquire);
  for (size_t n = 0; n < used; n++) {
    const Slot& slot = slots_[n];
    const uint64_t id = slot.id.load(std::memory_order_acquire);
    const uintptr_t base = slot.base.load(std::memory_order_acquire);
    if (base == 0 || at < base) continue;
    const size_t length = slot.size.load(std::memory_order_acquire);
    if (at - base >= length || size > length - (at - base)) continue;
    // The slot may have been reused for another segment meanwhile.
    if (slot.id.load(std::memory_order_acquire) == id &&
        slot.base.load(std::memory_order_acquire) == base)
      return {id, at - base};
  }
  return {};
}

}  // namespace weft
