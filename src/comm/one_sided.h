// One-sided calls of a rank: writes into windows of other ranks, signals, and waits for signals.
// Every rank counts the signals of each peer. A wait takes a number of them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "include/nccl.h"
#include "src/comm/windows.h"

namespace weft {

class Communicator;
namespace cuda {
class OneSidedLauncher;
}

struct OneSidedCall {
  enum class Kind : uint8_t { kPut, kWait };  // a put of no bytes is a signal
  Kind kind = Kind::kPut;
  const void* source = nullptr;
  size_t bytes = 0;
  int peer = 0;
  const void* window = nullptr;
  size_t offset = 0;
  // kWait: how many signals of each peer. Every peer is there once.
  struct Wait {
    int peer = 0;
    uint64_t signals = 0;
  };
  std::vector<Wait> waits;
  cudaStream_t stream = nullptr;  // GPUs only
};

// One thread at a time.
class OneSided {
 public:
  OneSided(Communicator& comm, const WindowParts& parts);
  ~OneSided();
  OneSided(const OneSided&) = delete;
  OneSided& operator=(const OneSided&) = delete;

  Windows& windows() { return windows_; }
  // Throws Error if the call cannot be made.
  void check(const OneSidedCall& call);
  // In the order of the calls. Host mode: returns when they are done.
  void run(std::span<const OneSidedCall* const> calls);
  // Lets all writes reach their hosts. Seconds at most.
  void drain(double seconds);
  // Waits until all calls are done; of writes to other hosts, until they need their source no more.
  void synchronize() noexcept;

 private:
  std::unique_ptr<RemoteMemory> make_memory();
  // Host mode.
  void put(const OneSidedCall& call);
  void wait(const OneSidedCall& call);
  void wait_until(int peer, const std::string& what, const std::function<bool()>& ready);
  // GPUs.
  void launch(const OneSidedCall& call);
  uint64_t* signals_at(int rank) const;
  std::byte* target_of(const OneSidedCall& call, std::string& why);

  Communicator& comm_;
  WindowParts parts_;
  std::vector<uint64_t> taken_;  // host mode, per peer: signals that waits have taken
  std::unique_ptr<cuda::OneSidedLauncher> launcher_;  // GPUs
  Windows windows_;
};

}  // namespace weft
