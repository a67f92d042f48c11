// The thread blocks that all processes of this machine have reserved on one GPU. Kernels of
// collectives wait for each other, so every block that may wait must find an SM. The rule:
// - The budget of a GPU is its SMs minus a few (block_budget()). The registry never hands out more.
// - Every resident block of ours is reserved, and an SM holds at least one block. So fewer blocks
//   than SMs are resident, some SM holds none of them, and the next reserved block fits there.
// What lies outside: waiting kernels of other libraries, and processes that do not share /dev/shm.
//
// The registry is a file in shared memory, named after the GPU's UUID. An entry is alive while its
// process holds a lock on its byte; the kernel drops the lock when the process dies.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "src/base/handles.h"

namespace weft::cuda {

// Blocks that may be reserved on a GPU of so many SMs. At least two SMs stay free.
int block_budget(int sms);

class BlockRegistry;

// Gives its blocks back when it is destroyed.
class BlockReservation {
 public:
  BlockReservation() = default;  // none
  BlockReservation(BlockReservation&& other) noexcept { *this = std::move(other); }
  BlockReservation& operator=(BlockReservation&& other) noexcept;
  ~BlockReservation() { release(); }

  int blocks() const { return blocks_; }
  void release() noexcept;

 private:
  friend class BlockRegistry;
  std::shared_ptr<BlockRegistry> registry_;
  int entry_ = -1, blocks_ = 0;
};

// Thread-safe. One object per file and process, because a process loses all its locks on a file
// when it closes any descriptor of it.
class BlockRegistry : public std::enable_shared_from_this<BlockRegistry> {
 public:
  static constexpr int kEntries = 4096;

  // The registry of a GPU; `id` is its UUID as text. Throws Error where the file cannot be used.
  static std::shared_ptr<BlockRegistry> of(const std::string& id, int sms);
  // For tests: in a file of that path.
  static std::shared_ptr<BlockRegistry> at(const std::string& path, int sms);

  BlockRegistry(std::string path, int sms);

  int budget() const { return budget_; }
  // Blocks that nobody has reserved now.
  int free();
  // All of them or none.
  std::optional<BlockReservation> reserve(int blocks);

 private:
  friend class BlockReservation;
  struct Table;
  class Guard;
  int free_locked();
  bool is_alive(int entry) const;
  void give_back(int entry) noexcept;
  Table& table() const;

  const std::string path_;
  const int budget_;
  Fd fd_;
  Mapping memory_;
  std::mutex mutex_;
};

}  // namespace weft::cuda
