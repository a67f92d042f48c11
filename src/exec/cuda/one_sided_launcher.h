// One-sided calls on streams: copies into peers' memory, signals, and waits for signals. Signals
// are counters in device memory, and what a wait expects is counted there, too. So graphs can be
// replayed. Users of this header need no CUDA header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "include/nccl.h"
#include "src/exec/remote_memory.h"

namespace weft::cuda {

struct HostFlags;

// Where a rank's signals are.
struct SignalWords {
  int device = 0, rank = 0, nranks = 1;
  HostFlags* flags = nullptr;
  uint64_t timeout_ns = 0;
  // In this rank's memory, nranks words each: signals of every peer; how many of them waits have
  // taken; requests to every peer whose end waits have seen; signals given to every peer.
  uint64_t *signals = nullptr, *taken = nullptr, *seen = nullptr, *given = nullptr;
  // Where this rank signals every peer; nullptr: out of reach.
  std::vector<uint64_t*> peers;
};

// One thread at a time. Calls of one stream run in order.
class OneSidedLauncher {
 public:
  explicit OneSidedLauncher(SignalWords words);
  ~OneSidedLauncher();
  OneSidedLauncher(const OneSidedLauncher&) = delete;
  OneSidedLauncher& operator=(const OneSidedLauncher&) = delete;

  bool reaches(int peer) const;
  // Signals and waits are collected. They go to the stream with flush(), and before calls on
  // another stream.
  void put(cudaStream_t stream, int peer, void* to, const void* from, size_t bytes);
  void wait(cudaStream_t stream, int peer, uint64_t signals);
  // The stream calls `submit` and goes on when the request needs its source no more.
  void put_remote(cudaStream_t stream, int peer, std::function<void()> submit);
  void flush();
  // Waits until all work is done that was not captured.
  void synchronize() noexcept;

  std::unique_ptr<RemoteMemory> remote_memory();

 private:
  struct State;
  void turn_to(cudaStream_t stream);
  std::unique_ptr<State> state_;
};

}  // namespace weft::cuda
