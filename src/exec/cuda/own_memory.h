// This rank's allocations on its board: those that somebody registered, and those that calls use
// again and again. A call asks where its peers find a buffer. Memory that is not on the board is
// private for that call, and the background thread puts it there.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "src/exec/cuda/board.h"
#include "src/exec/cuda/memory_driver.h"

namespace weft::cuda {

struct SharingOptions {
  bool automatic = true;     // also memory that nobody registered
  uint64_t most_bytes = 0;   // of such memory
  uint64_t least_bytes = 0;  // of such an allocation
  size_t slots = 0, regions = 0;
  // Memory that calls have used since is not given up for other memory.
  std::chrono::milliseconds idle{1000};
};

// Thread-safe. tend() runs on the background thread only.
class OwnMemory {
 public:
  // `wake`: there is work for tend().
  OwnMemory(int rank, int nranks, Board board, const SharingOptions& options,
            std::shared_ptr<MemoryDriver> driver, std::function<void()> wake);
  ~OwnMemory();
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;

  // Registrations are counted. Whoever registers promises to deregister before the memory is freed.
  void add(const void* pointer, size_t size);
  void remove(const void* pointer);

  // Where peers find [pointer, pointer + size), see DeviceComm; kPrivate: they cannot (yet).
  // `peer`: who needs it; -1: all. `captured`: the place must stay right as long as a graph lives.
  uint64_t place(const void* pointer, size_t size, int peer, bool captured);
  // After the kernels of a launch that was not captured.
  void launched(cudaStream_t stream);

  // Shares what calls asked for, withdraws freed memory, takes back descriptors. Returns whether it
  // should be called again soon.
  bool tend();
  bool empty() const;  // nothing is on the board

 private:
  using Clock = std::chrono::steady_clock;
  struct Own {
    Allocation memory;
    size_t slot = 0;
    uint64_t version = 0, region = 0, descriptor = 0;
    uint32_t mapped_by = 0, refused_by = 0;  // a bit per rank
    int registered = 0;
    bool ours = false;      // from ncclMemAlloc
    bool retiring = false;  // no call uses it any more
    Clock::time_point used;

    uint64_t end() const { return memory.base + memory.size; }
    bool is_kept() const { return registered > 0 || ours; }
  };
  using Owned = std::map<uint64_t, Own>;  // by base
  struct Registration {
    uint64_t begin = 0, end = 0;
    std::vector<Allocation> parts;
  };
  struct Request {
    uint64_t begin = 0, end = 0, id = 0;
    bool ours = false;
  };
  // With the lock.
  Owned::iterator at(uint64_t address);
  bool usable(Own& own, int peer, bool captured);
  void hear(Own& own);
  uint64_t ask(uint64_t begin, uint64_t end, bool captured);
  Owned::iterator withdraw(Owned::iterator it);
  void release(const std::vector<Allocation>& parts);
  bool insert(const Allocation& memory, BoardEntry entry, bool ours, bool kept);
  uint64_t region_of(uint64_t base);
  bool make_room(uint64_t bytes);

  // Without it.
  Shared share(uint64_t begin, uint64_t end, bool ours, std::vector<Allocation>* registered);
  Shared share_one(const Allocation& memory, uint64_t end, bool ours, bool kept);
  bool serve();
  void sweep();
  bool finish_retiring();

  const int rank_, nranks_;
  const SharingOptions options_;
  const std::shared_ptr<MemoryDriver> driver_;
  const std::function<void()> wake_;
  mutable std::mutex mutex_;
  Board board_;
  Owned own_;
  std::vector<bool> slots_;  // in use
  std::vector<uint64_t> regions_;
  std::vector<Registration> registrations_;
  std::vector<Request> requests_;
  std::map<uint64_t, Clock::time_point> refused_;  // by id: until when nobody asks again
  // Memory that is given up stays on the board until the launches so far have ended.
  enum class Mark : uint8_t { kNone, kWanted, kSet };
  std::atomic<Mark> mark_{Mark::kNone};
};

}  // namespace weft::cuda
