// This rank's allocations on its board: those that somebody registered, and those that calls use
// again and again. A call asks where its peers find a buffer. Memory that is not on the board is
// private for that call, which puts it there for later ones.
//
// Who may touch memory that the application can free at any time:
// - A call, for its own buffers: nobody may free them meanwhile. So only calls (and add()) ask CUDA
//   for allocations and their handles. A handle of memory that another thread frees in that very
//   moment has crashed driver 580.
// - The background thread compares ids. That is safe at any address: the driver looks the address
// up
//   with its own lock and reports an error if there is nothing.
// - Peers map by handles or descriptors of what may be freed by now. The system keeps the memory
// for
//   them, or reports an error. NICs register by descriptors too, or, where a plugin takes none, by
//   address.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "src/exec/cuda/board.h"
#include "src/exec/cuda/memory_driver.h"
#include "src/exec/cuda/sharing_options.h"
#include "src/transport/nic_buffers.h"

namespace weft::cuda {

// tend() runs on the background thread. add() and remove() are thread-safe. One other thread at a
// time calls the rest.
class OwnMemory {
 public:
  // `wake`: there is work for tend().
  OwnMemory(int rank, int nranks, Board board, const SharingOptions& options,
            std::shared_ptr<MemoryDriver> driver, std::function<void()> wake);
  ~OwnMemory();
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;

  // Allocations are put there too. Before the first launch.
  void reach_nics(std::shared_ptr<NicBuffers> nics) { nics_ = std::move(nics); }

  // Registrations are counted. Whoever registers promises to deregister before the memory is freed.
  // If there is no room for all of it now, calls share the rest.
  void add(const void* pointer, size_t size);
  void remove(const void* pointer);

  // Comes before the first place() of a launch.
  void begin_launch();
  // Where peers find [pointer, pointer + size), see DeviceComm; kPrivate: they cannot (yet).
  // `peer`: who needs it; -1: all; kNics: NICs, and the place is the address. `captured`: the place
  // must stay right as long as a graph lives.
  static constexpr int kNics = -2;
  uint64_t place(const void* pointer, size_t size, int peer, bool captured);
  // For the end: nobody uses the memory any more.
  void withdraw_all();
  // After the kernels of a launch that was not captured.
  void launched(cudaStream_t stream);

  // Withdraws freed memory, takes back descriptors. Returns whether it should be called again soon.
  bool tend();
  bool empty() const;  // nothing is on the board

 private:
  using Clock = std::chrono::steady_clock;
  struct Own {
    Allocation memory;
    size_t slot = 0;
    uint64_t version = 0, region = 0, descriptor = 0;
    uint32_t mapped_by = 0, refused_by = 0;  // a bit per rank
    int nic = -1;                            // its number in nics_; -1: it is not there
    int registered = 0;
    bool ours = false;      // from ncclMemAlloc
    bool retiring = false;  // no call uses it any more
    bool answered = false;  // by all peers
    Clock::time_point used;

    uint64_t end() const { return memory.base + memory.size; }
    bool is_kept() const { return registered > 0 || ours; }
  };
  using Owned = std::map<uint64_t, Own>;  // by base
  struct Range {
    uint64_t begin = 0, end = 0;
    bool operator==(const Range&) const = default;
  };
  struct Registration {
    Range range;
    std::vector<Allocation> parts;
  };
  // What a launch found out. The next ones need no lock, while the epoch and the id are the same.
  struct Known {
    uint64_t begin = 0, end = 0;
    int peer = -1;
    uint64_t epoch = 0;
    uint64_t at = 0, id = 0;  // of the allocation
    bool watched = true;      // nobody promises to keep the memory
    uint64_t place = 0;
    Clock::time_point used, until = Clock::time_point::max();
  };
  // With the lock.
  Owned::iterator at(uint64_t address);
  uint32_t needed(int peer) const;  // a bit per rank
  bool usable(Own& own, int peer, bool captured);
  bool refused(const Own& own, int peer);
  void hear(Own& own);
  Owned::iterator withdraw(Owned::iterator it);
  void release(const std::vector<Allocation>& parts);
  bool join(const Allocation& memory, bool ours, bool kept, Shared& shared);
  // `dma_buf`: for NICs, perhaps empty; nullopt: it is not for them.
  bool insert(const Allocation& memory, BoardEntry entry, std::optional<Fd> dma_buf, bool ours,
              bool kept);
  uint64_t region_of(uint64_t base);
  bool make_room(uint64_t bytes);

  void changed() { epoch_.fetch_add(1, std::memory_order_release); }

  // Without it.
  uint64_t find_place(Known& known, bool captured);
  Range registered_at(uint64_t address) const;  // empty: nobody registered it
  void ask(Known& known, uint64_t from, bool captured);
  Shared share_registered(Range range, uint64_t from, uint64_t end, bool ours);
  bool is_known(const Known& known, uint64_t begin, uint64_t end, int peer);
  uint64_t id_in_launch(uint64_t address);
  Shared share(uint64_t begin, uint64_t end, bool ours, std::vector<Allocation>* registered,
               int most);
  Shared share_one(const Allocation& memory, uint64_t begin, uint64_t end, bool ours, bool kept,
                   int& most);
  bool hear_all();
  void sweep();
  bool finish_retiring();

  // For logs.
  int label() const {
    return options_.ranks.empty() ? rank_ : options_.ranks[static_cast<size_t>(rank_)];
  }

  const int rank_, nranks_;
  const SharingOptions options_;
  const std::shared_ptr<MemoryDriver> driver_;
  const std::function<void()> wake_;
  std::shared_ptr<NicBuffers> nics_;  // nullptr: NICs reach no buffers
  mutable std::mutex mutex_;
  Board board_;
  Owned own_;
  std::vector<bool> slots_;  // in use
  std::vector<uint64_t> regions_;
  std::vector<Registration> registrations_;
  std::atomic<uint64_t> epoch_{1};  // changes whenever a place may change
  // Of the calling thread.
  struct Refused {
    Clock::time_point until;  // nobody asks again before
    bool registered = false;  // it was so then; if not, registering it may change the answer
  };
  std::map<uint64_t, Refused> refused_;  // by id
  Clock::time_point now_;                // of the launch
  uint64_t placed_ = 0, private_ = 0;    // buffers of calls
  std::array<Known, 64> known_;
  std::array<std::pair<uint64_t, uint64_t>, 4> ids_{};  // by address; asked for in this launch
  size_t next_id_ = 0;
  // Memory that is given up stays on the board until the launches so far have ended.
  enum class Mark : uint8_t { kNone, kWanted, kSet };
  std::atomic<Mark> mark_{Mark::kNone};
};

}  // namespace weft::cuda
