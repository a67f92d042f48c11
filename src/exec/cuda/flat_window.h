// The memory of a window on the GPUs of a host. Every rank maps the memory of all ranks of its host
// into one range of its own addresses, at equal distances. Kernels compute a peer's address.
// Users of this header need no CUDA header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/base/handles.h"

namespace weft::cuda {

// Whether a device's memory can be exported as descriptors and mapped.
bool can_share_mappings(int device);

// A rank's memory around a window, as other ranks map it: whole allocations from cuMemCreate, one
// after the other.
struct LentWindow {
  struct Part {
    uint64_t base = 0, size = 0;
    uint64_t descriptor = 0;  // see Descriptors
  };
  uint64_t lead = 0;  // bytes from the first allocation to the window
  std::vector<Part> parts;

  uint64_t bytes() const;
};

// Lends the allocations that hold [pointer, pointer + size). Without parts, and with the reason in
// `why`, if that is not possible.
LentWindow lend_window(int device, const void* pointer, size_t size, std::string& why);
void take_back(const LentWindow& lent);

// Maps at construction and unmaps at destruction, or when no kernel of this process can be under
// way.
class FlatWindow {
 public:
  struct Member {
    LentWindow lent;
    bool here = false;  // a rank of this process
  };
  // Gets a descriptor that a member of another process has lent. May throw Error.
  using Borrow = std::function<Fd(size_t member, uint64_t descriptor)>;
  // Throws Error if the memory cannot be mapped.
  FlatWindow(int device, std::span<const Member> team, const Borrow& borrow);
  ~FlatWindow();
  FlatWindow(const FlatWindow&) = delete;
  FlatWindow& operator=(const FlatWindow&) = delete;

  // Where the window of a member begins.
  char* at(size_t member) const;
  uint32_t stride_4g() const { return stride_4g_; }

 private:
  struct Mapped {
    uint64_t at = 0, size = 0;
  };
  static void unmap(const std::vector<Mapped>& mapped, uint64_t base, uint64_t bytes);
  std::string map(size_t number, const Member& member, const Borrow& borrow);

  const int device_;
  uint64_t base_ = 0, bytes_ = 0;
  uint64_t lead_ = 0;
  uint32_t stride_4g_ = 0;
  std::vector<Mapped> mapped_;
};

}  // namespace weft::cuda
