// The peers' allocations, as this rank maps them. Kernels find their addresses in a table by rank
// and number: that of the allocation, or that of the region it is in.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "src/exec/cuda/board.h"
#include "src/exec/cuda/memory_driver.h"
#include "src/exec/cuda/sharing_options.h"

namespace weft::cuda {

// Used by one thread at a time.
class Imports {
 public:
  // `processes`: the process of each rank. Their memory needs no mapping in the same process.
  Imports(int rank, std::span<const Board> boards, std::span<const uint64_t> processes,
          const SharingOptions& options, std::shared_ptr<MemoryDriver> driver);
  // Unmaps everything.
  ~Imports();
  Imports(const Imports&) = delete;
  Imports& operator=(const Imports&) = delete;

  // Maps what is new on the peers' boards, unmaps what is gone, and answers. Returns whether it
  // should be called again soon. Closing may wait for kernels: unless none is under way, it is put
  // off, but not for long.
  bool catch_up();
  bool empty() const { return mapped_ == 0; }

 private:
  struct Mapped {
    BoardEntry entry;
    uint64_t at = 0;  // 0: not mapped
  };
  struct Peer {
    Board board;
    bool here;          // a rank of this process
    uint64_t read = 0;  // version of its board
    std::vector<Mapped> slots;
    std::map<uint64_t, uint64_t> regions;  // number to address
    int tries = 0;
    bool warned = false;
  };
  size_t index(size_t peer, size_t number) const { return peer * (slots_ + regions_) + number; }
  bool read(size_t peer, std::vector<std::pair<size_t, BoardEntry>>& changed);
  bool may_close();
  void close(size_t peer, Mapped& mapped);
  static bool is_taken(const Peer& peer, const BoardEntry& entry);
  bool open(size_t peer, size_t slot, const BoardEntry& entry);
  uint64_t map(size_t peer, const BoardEntry& entry, std::string& why);

  // The number of a rank in the communicator, for logs.
  int label(size_t rank) const { return ranks_.empty() ? static_cast<int>(rank) : ranks_[rank]; }

  const int rank_;
  const size_t slots_, regions_;
  const std::vector<int> ranks_;
  const std::shared_ptr<MemoryDriver> driver_;
  std::vector<Peer> peers_;
  size_t mapped_ = 0;
  bool putting_off_ = false;
  std::chrono::steady_clock::time_point put_off_since_;
};

}  // namespace weft::cuda
