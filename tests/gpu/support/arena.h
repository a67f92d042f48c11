// Device memory of one rank, allocated before any kernel runs and handed out in pieces. Tests never
// allocate while a kernel may wait for them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "nccl.h"

namespace weft::test {

// The allocator of the memory, and how the communicator learns about it.
enum class Origin {
  kCudaMalloc,
  kNcclMemAlloc,
  kRegistered,         // cudaMalloc, ncclCommRegister
  kWindow,             // ncclMemAlloc, ncclCommWindowRegister
  kVirtual,            // cuMemCreate in several pieces, one address range, with file descriptors
  kVirtualPrivate,     // the same without handles that other processes could open
  kVirtualRegistered,  // kVirtual, ncclCommRegister
};
const std::vector<Origin>& all_origins();
const char* name_of(Origin origin);

class Arena {
 public:
  // Origins that register need `comm`. All ranks register windows together.
  Arena(size_t bytes, Origin origin, ncclComm_t comm = nullptr);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Returns memory aligned to 256 bytes. Throws when the arena is used up.
  char* take(size_t bytes);
  // Everything is free again.
  void reset() { used_ = 0; }
  size_t size() const { return size_; }
  char* data() const { return base_; }

 private:
  class Mapping;
  size_t size_, used_ = 0;
  Origin origin_;
  ncclComm_t comm_;
  char* base_ = nullptr;
  void* registration_ = nullptr;
  ncclWindow_t window_ = nullptr;
  std::unique_ptr<Mapping> mapping_;
};

}  // namespace weft::test
