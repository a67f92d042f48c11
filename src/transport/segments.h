// Memory from ncclMemAlloc in host mode: memfd segments that other processes can map, so that data
// is lent and not copied.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "src/base/handles.h"

namespace weft {

struct SegmentRef {
  uint64_t id = 0;  // 0: not in a segment
  uint64_t offset = 0;
};

// Thread-safe; one per process. find() takes no lock: it is on the path of every operation.
class Segments {
 public:
  static Segments& instance();

  void* allocate(size_t size);
  // False if `pointer` did not come from allocate(). Waits until no network has the memory
  // registered.
  bool release(void* pointer);
  // The segment that holds [pointer, pointer + size).
  SegmentRef find(const void* pointer, size_t size) const noexcept;
  // The memory of a segment. Empty: it was freed.
  std::span<std::byte> view(uint64_t id) noexcept;
  // How many were freed so far.
  uint64_t releases() const noexcept { return releases_.load(std::memory_order_acquire); }
  // Calls `use` with the segment's descriptor, for another process, and its size. False if there is
  // no such segment. `use` must not keep the descriptor.
  template <typename Use>
  bool share(uint64_t id, Use use) {
    std::lock_guard lock(mutex_);
    for (auto& slot : slots_)
      if (slot.id.load(std::memory_order_relaxed) == id && id != 0) {
        use(slot.fd.get(), slot.size.load(std::memory_order_relaxed));
        return true;
      }
    return false;
  }

  Segments();

 private:
  // What release() frees. Nobody else finds it any more.
  struct Taken {
    uint64_t id = 0;  // 0: there is none
    size_t size = 0;
    Fd fd;
  };
  Taken take(const void* pointer);

  // Enough for every allocator seen in practice. Beyond that, memory is private and is not lent.
  static constexpr size_t kSlots = 4096;
  struct Slot {
    std::atomic<uint64_t> id{0};
    std::atomic<uintptr_t> base{0};
    std::atomic<size_t> size{0};
    Fd fd;
  };
  std::mutex mutex_;
  std::array<Slot, kSlots> slots_;
  std::atomic<size_t> used_{0};  // slots beyond this were never taken
  std::atomic<uint64_t> releases_{0};
  uint64_t next_id_;
};

}  // namespace weft
