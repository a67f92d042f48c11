// The thread blocks that all processes of this machine have reserved on one GPU. Kernels of
// collectives wait for each other, so every block that may wait must find an SM. The rule:
// - The budget of a GPU is its SMs minus a few (block_budget()). The registry never hands out more.
// - Every resident block of ours is reserved, and an SM holds at least one block. So fewer blocks
//   than SMs are resident, some SM holds none of them, and the next reserved block fits there.
// What lies outside: waiting kernels of other libraries, and processes that do not share /dev/shm.
//
// The registry is a file in shared memory, named after the GPU's UUID. Nothing is in it: byte i + 1
// stands for block i, and whoever holds the kernel's lock on the byte has reserved the block. So no
// contents can be damaged, no block has two owners, and the kernel gives back what a process had
// that dies. Another user can only take blocks away, and holds the file's locks for that.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

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

  int blocks() const { return static_cast<int>(bytes_.size()); }
  void release() noexcept;

 private:
  friend class BlockRegistry;
  std::shared_ptr<BlockRegistry> registry_;
  std::vector<int> bytes_;
};

// Thread-safe. One object per file and process, because a process loses all its locks on a file
// when it closes any descriptor of it.
class BlockRegistry : public std::enable_shared_from_this<BlockRegistry> {
 public:
  // The registry of a GPU; `id` is its UUID as text. Throws Error where the file cannot be used.
  static std::shared_ptr<BlockRegistry> of(const std::string& id, int sms);
  // For tests: in a file of that path.
  static std::shared_ptr<BlockRegistry> at(const std::string& path, int sms);

  BlockRegistry(std::string path, int sms);

  int budget() const { return budget_; }
  // Blocks that nobody has reserved now. 0 where another process keeps all others out.
  int free();
  // All of them or none. Throws Error where the kernel grants no locks.
  std::optional<BlockReservation> reserve(int blocks);

 private:
  friend class BlockReservation;
  class Guard;
  std::vector<int> free_bytes();
  void give_back(const std::vector<int>& bytes) noexcept;

  const std::string path_;
  const int budget_;
  Fd fd_;
  std::mutex mutex_;        // protects the following
  std::vector<bool> mine_;  // by byte: a process does not see its own locks
  std::chrono::steady_clock::time_point kept_out_until_;  // see Guard
};

}  // namespace weft::cuda
