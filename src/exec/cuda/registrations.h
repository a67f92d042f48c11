// Device memory that processes share. Every rank lists its allocations on a board in host memory
// (own_memory.h). Its peers map them (imports.h) and answer on the board. A buffer is used where it
// lies once every rank that needs it has mapped it. So no call waits for a peer. The launching
// thread lists its own buffers, but it neither maps nor unmaps: one thread per communicator does,
// from the first need on.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "src/exec/cuda/imports.h"
#include "src/exec/cuda/own_memory.h"

namespace weft::cuda {

// add() and remove() are thread-safe. One thread at a time calls the rest.
class Registrations {
 public:
  // `processes`: the process of each rank. Memory that nobody registered is shared only if every
  // rank has a process of its own: unmapping it may wait for kernels.
  Registrations(int rank, std::span<std::byte* const> boards, std::span<const uint64_t> processes,
                SharingOptions options, std::shared_ptr<MemoryDriver> driver);
  ~Registrations();
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  void reach_nics(std::shared_ptr<NicBuffers> nics) { own_.reach_nics(std::move(nics)); }
  void add(const void* pointer, size_t size);
  void remove(const void* pointer) { own_.remove(pointer); }

  // A launch: begin, any number of place()s with their kernels, end.
  void begin_launch(bool captured);
  // See OwnMemory::place().
  uint64_t place(const void* pointer, size_t size, int peer = -1);
  void end_launch(cudaStream_t stream);

 private:
  void wake();
  void start();  // with the lock
  void work();
  bool look();

  const int rank_;
  std::vector<Board> boards_;
  std::vector<uint64_t> heard_;  // versions of the boards when a launch last looked
  const std::shared_ptr<MemoryDriver> driver_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool news_ = false, stopping_ = false, failed_ = false;
  bool captured_ = false, looked_ = false;
  OwnMemory own_;
  Imports imports_;
  std::thread thread_;
};

}  // namespace weft::cuda
