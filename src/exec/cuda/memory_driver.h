// What sharing memory needs of CUDA. Tests have a driver of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "include/nccl.h"
#include "src/base/handles.h"
#include "src/exec/cuda/board.h"

namespace weft::cuda {

// One allocation of this process.
struct Allocation {
  uint64_t base = 0, size = 0;
  uint64_t id = 0;  // no other allocation of this process has had it
};

// Allocations that have descriptors are mapped at their place in a region: an aligned part of the
// owner's address space of this size. So a buffer that spans several of them is contiguous for
// peers, too.
inline constexpr uint64_t kRegionBytes = uint64_t{1} << 36;

enum class Shared : uint8_t { kYes, kNo, kLater };  // kLater: there is no room now

// Functions of the owner: find() and share() while nobody may free the memory, id() and the others
// on any thread at any time. Functions of the importer: one thread at a time.
class MemoryDriver {
 public:
  MemoryDriver() = default;
  virtual ~MemoryDriver() = default;
  MemoryDriver(const MemoryDriver&) = delete;
  MemoryDriver& operator=(const MemoryDriver&) = delete;

  // Called first by a thread that uses the driver in the background.
  virtual void enter() = 0;
  // The communicator was aborted. Kernels of peers may still use this rank's memory although its
  // own have ended: nothing may be withdrawn or unmapped any more.
  virtual bool is_stopped() = 0;

  // The id of the allocation at an address; 0: there is none. Takes less than 0.1 us.
  virtual uint64_t id(uint64_t address) = 0;
  virtual bool find(uint64_t address, Allocation& found) = 0;
  // Whether the memory comes from ncclMemAlloc. It is shared in any case.
  virtual bool is_ours(uint64_t address) = 0;
  // Fills in how peers map the allocation: `handle`, or `descriptor` with a region of kRegionBytes
  // (any but 0). `watched`: nobody promises to keep the memory, so ids must tell when it changes.
  virtual Shared share(const Allocation& allocation, bool watched, BoardEntry& entry,
                       std::string& why) = 0;
  virtual void take_back(uint64_t descriptor) = 0;
  // A descriptor by which NICs reach it; empty: they get its address.
  virtual Fd dma_buf(const Allocation& allocation) = 0;
  // mark() comes behind all launches so far. reached() says whether they have ended.
  virtual void mark(cudaStream_t stream) = 0;
  virtual bool reached() = 0;

  // The importer. Whether no launch is under way. A hint: closing then waits for nobody.
  virtual bool is_quiet() = 0;
  // 0: there is no room.
  virtual uint64_t reserve(uint64_t bytes) = 0;
  virtual void unreserve(uint64_t base, uint64_t bytes) = 0;
  // Maps a peer's allocation, at `at` if it has a region. Returns its address; 0: failed, with the
  // reason in `why`. Without a reason the importer tries again.
  virtual uint64_t map(int peer, const BoardEntry& entry, uint64_t at, std::string& why) = 0;
  virtual void unmap(const BoardEntry& entry, uint64_t at) = 0;
  // What kernels read. They see it when flush_table() has returned.
  virtual void set_table(size_t index, uint64_t address) = 0;
  virtual void flush_table() = 0;
  // Runs it when no kernel of this process can wait for another rank of it.
  virtual void when_quiet(std::function<void()> free) = 0;
};

}  // namespace weft::cuda
