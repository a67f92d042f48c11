// Device memory that processes share by registration. Every rank lists its registrations on a board
// in host memory. Peers read the board when they launch, map new entries, and write on their own
// boards how far they have read. A registration is used once every rank has mapped it, so no call
// waits for a peer.
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
  // For memory with handles of its own: the number of allocations in it, and the number of the
  // first descriptor (see Descriptors).
  uint64_t pieces, first_descriptor;
  char handle[64];  // otherwise: CUDA IPC
};
struct Board {
  std::atomic<uint64_t> version;
  std::atomic<uint64_t> seen[kMaxRanks];  // versions of the peers' boards that this rank has read
  BoardEntry entries[kMaxRegistrations];
};

// Used by one thread at a time.
class Registrations {
 public:
  // Asks a peer for a descriptor that it lends. Returns an empty one if the peer has taken it back.
  // May throw.
  using Borrow = std::function<std::pair<Fd, uint64_t>(int peer, uint64_t id)>;
  // `processes`: the process of each rank.
  Registrations(int rank, int device, std::span<std::byte* const> boards,
                std::span<const uint64_t> processes, Borrow borrow);
  ~Registrations();
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  void add(const void* pointer, size_t size);
  void remove(const void* pointer);

  // Maps what peers have registered since the last call. May touch the device. Cheap if nothing is
  // new.
  void catch_up();
  // The place of [pointer, pointer + size) for the peers, see DeviceComm. kPrivate if they cannot
  // access it (yet).
  uint64_t place(const void* pointer, size_t size);

  const uint64_t* table() const { return table_; }

 private:
  struct Own {
    uint64_t base = 0, size = 0, version = 0;
    int count = 0;
    uint64_t lent = 0;  // number of its first descriptor, until every rank has mapped them
    // Number of the ncclMemAlloc allocation, if nobody registered it explicitly.
    uint64_t allocation = 0;
  };
  struct Mapped {
    uint64_t version = 0;
    void* opened = nullptr;                // mapped by CUDA IPC
    std::unique_ptr<ImportedRange> range;  // mapped by descriptors
  };
  // One entry of a board; version 0 if it is being written.
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
  // False if memory cannot be mapped. Then this rank must not acknowledge the board.
  bool import(int peer, size_t slot);
  bool open(int peer, const BoardEntry& board, const Entry& entry, Mapped& mapped);
  static void close(Mapped& mapped);
  bool seen_by_all(uint64_t version) const;

  const int rank_, device_;
  const Borrow borrow_;
  std::vector<Board*> boards_;
  std::vector<uint64_t> processes_;
  std::vector<uint64_t> read_;  // version read so far of each board
  std::vector<Own> own_;
  std::vector<Mapped> mapped_;  // [rank][slot]
  const size_t table_bytes_;
  const PooledResource kept_mirror_{DeviceStore::Kind::kHostMemory, table_bytes_},
      kept_table_{DeviceStore::Kind::kDeviceMemory, table_bytes_},
      kept_stream_{DeviceStore::Kind::kStream};
  // Host copy of the table. Pinned: a copy from pageable memory would wait behind kernels of other
  // ranks.
  uint64_t* const mirror_ = static_cast<uint64_t*>(kept_mirror_.get());
  uint64_t* const table_ = static_cast<uint64_t*>(kept_table_.get());
  const cudaStream_t stream_ = kept_stream_.stream();
  bool changed_ = false;
  uint64_t releases_seen_ = 0;
};

// The number of the ncclMemAlloc allocation that holds `pointer`; 0 if none. Such memory is
// registered automatically at its first use. The number tells a new allocation from an old one at
// the same address.
uint64_t allocation_number(const void* pointer);
// How many ncclMemAlloc allocations have been freed.
uint64_t releases();

}  // namespace weft::cuda
