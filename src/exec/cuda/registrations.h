// Device memory that processes share by registration. Every rank has a board in host memory where
// it lists what it registered; the others look at it when they launch something, map what is new,
// and say on their own boards how far they have read. A registration is used once everyone has it,
// so that no call has to wait for anyone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "src/exec/cuda/device_comm.h"
#include "src/exec/cuda/device_store.h"
#include "src/exec/cuda/virtual_memory.h"

namespace weft::cuda {

struct BoardEntry {
  std::atomic<uint64_t> version;  // 0: never used; odd: being written
  uint64_t base, size;            // size 0: withdrawn
  // Of memory with handles of its own: how many allocations it consists of, and the number of the
  // first descriptor (see Descriptors).
  uint64_t pieces, first_descriptor;
  char handle[64];  // else: CUDA IPC
};
struct Board {
  std::atomic<uint64_t> version;
  std::atomic<uint64_t> seen[kMaxRanks];  // of the others' boards
  BoardEntry entries[kMaxRegistrations];
};

// Used by one thread at a time.
class Registrations {
 public:
  // Asks a peer for a descriptor that it lends; an empty one if it has taken it back. May throw.
  using Borrow = std::function<std::pair<Fd, uint64_t>(int peer, uint64_t id)>;
  // `processes`: of each rank.
  Registrations(int rank, int device, std::span<std::byte* const> boards,
                std::span<const uint64_t> processes, Borrow borrow);
  ~Registrations();
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  void add(const void* pointer, size_t size);
  void remove(const void* pointer);

  // Maps what the others have registered meanwhile. May touch the device; cheap when nothing is
  // new.
  void catch_up();
  // Where [pointer, pointer + size) is for the others: see DeviceComm; kPrivate when they cannot
  // reach it (yet).
  uint64_t place(const void* pointer, size_t size);

  const uint64_t* table() const { return table_; }

 private:
  struct Own {
    uint64_t base = 0, size = 0, version = 0;
    int count = 0;
    uint64_t lent = 0;        // the first of its descriptors, until everyone has them
    uint64_t allocation = 0;  // of memory from allocate() that nobody registered: its number
  };
  struct Mapped {
    uint64_t version = 0;
    void* opened = nullptr;                // by CUDA IPC
    std::unique_ptr<ImportedRange> range;  // by descriptors
  };
  // What a board says of a slot; version 0 if it is being written.
  struct Entry {
    uint64_t version = 0, base = 0, size = 0, pieces = 0, first_descriptor = 0;
    char handle[64] = {};
  };
  static Entry read(const BoardEntry& entry);
  void publish(size_t slot, const Entry& entry);
  void withdraw(size_t slot);
  void copy_table();
  void withdraw_freed();
  bool share(Own& own, const MemoryRange& range, Entry& entry);
  // False when memory cannot be mapped: the board must not be acknowledged.
  bool import(int peer, size_t slot);
  bool open(int peer, const BoardEntry& board, const Entry& entry, Mapped& mapped);
  static void close(Mapped& mapped);
  bool seen_by_all(uint64_t version) const;

  const int rank_, device_;
  const Borrow borrow_;
  std::vector<Board*> boards_;
  std::vector<uint64_t> processes_;
  std::vector<uint64_t> read_;  // how far each board has been read
  std::vector<Own> own_;
  std::vector<Mapped> mapped_;  // [rank][slot]
  const size_t table_bytes_;
  const PooledResource kept_mirror_{DeviceStore::Kind::kHostMemory, table_bytes_},
      kept_table_{DeviceStore::Kind::kDeviceMemory, table_bytes_},
      kept_stream_{DeviceStore::Kind::kStream};
  // Of the table. Pinned: a copy from other memory would wait behind kernels of other ranks.
  uint64_t* const mirror_ = static_cast<uint64_t*>(kept_mirror_.get());
  uint64_t* const table_ = static_cast<uint64_t*>(kept_table_.get());
  const cudaStream_t stream_ = kept_stream_.stream();
  bool changed_ = false;
  uint64_t releases_seen_ = 0;
};

// The number of the allocation of ncclMemAlloc that `pointer` lies in, 0 if it is in none. Such
// memory is registered by itself at its first use; numbers tell a new allocation from an old one at
// the same address.
uint64_t allocation_number(const void* pointer);
// How many times such memory has been freed.
uint64_t releases();

}  // namespace weft::cuda
