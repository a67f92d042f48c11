// Moves data between ranks of a host without thread blocks: copies that prefer the copy engines,
// ordered by memory operations of the streams. Waits are for words in pinned host memory, so that
// the CPU can end them.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "src/exec/cuda/copy_work.h"
#include "src/exec/cuda/device_comm.h"
#include "src/exec/cuda/device_store.h"

namespace weft::cuda {

class SharedMemory;

// Where the CopyBoard is on a rank's board: behind its registrations, on a page of its own.
inline constexpr size_t kCopyBoardAt = 32u << 10, kCopyBoardBytes = 4096;

// The words a rank waits for, on its own board; peers set them. Every word is a semaphore of one:
// set by the one side, cleared by the other when it has waited for it. So no number has to be
// counted, and graphs can be replayed.
struct CopyBoard {
  uint32_t full[kMaxRanks][kCopySlots];   // [sender]: its slot in my memory
  uint32_t empty[kMaxRanks][kCopySlots];  // [receiver]: my slot in its memory
  // For the guard: the peer + 1 that the stream waits for, [0] to send to, [1] to receive from.
  uint32_t waiting[2];
};

// Used like its executor: by one thread at a time, with its device current; stop() and peer_left()
// by any thread.
class CopyEngine : private CopyQueue {
 public:
  struct Peer {
    std::byte* stage = nullptr;  // its slots, kCopySlots for every sender
    std::byte* board = nullptr;  // where its CopyBoard is mapped here
    bool same_gpu = true;
  };

  // Finds out whether the GPU can do this. `flags` are told of waits that were in vain.
  CopyEngine(int rank, int device, double timeout_s, HostFlags* flags);
  ~CopyEngine() override;
  CopyEngine(const CopyEngine&) = delete;
  CopyEngine& operator=(const CopyEngine&) = delete;

  // Why it cannot; empty if it can.
  const std::string& missing() const { return missing_; }
  bool connected() const { return !ends_.empty(); }
  size_t slot_bytes() const { return slot_bytes_; }
  // Before the ranks meet for the last time at init. `alone`: no other rank of this process uses
  // the GPU, so that sending and receiving may have a stream each. Boards are pinned by `shared`,
  // which outlives all ranks of this process.
  void connect(std::span<const Peer> peers, size_t slot_bytes, bool alone, SharedMemory& shared);

  // Puts one operation on a stream.
  void run(const CopyWork& work, cudaStream_t stream, bool captured);
  // Says once for every kind why it needs kernels.
  void tell_of_kernels(CollectiveKind kind, const char* why);

  // Ends every wait, now and later.
  void stop() noexcept;
  // Waits for this rank end with an error.
  void peer_left(int rank) noexcept;

 private:
  // For one peer, as the device sees it.
  struct Ends {
    CUdeviceptr full = 0, empty = 0;                     // what I wait for, [slot]
    CUdeviceptr their_full = 0, their_empty = 0;         // what I set
    std::byte *their_slots = nullptr, *slots = nullptr;  // where I put, and where I find
  };

  void copy_own(const OwnCopy& copy) override;
  void send(std::span<const CopyPiece> pieces) override;
  void receive(std::span<const CopyPiece> pieces) override;
  void take(std::span<const CopyPiece> pieces, bool sends);
  void give(std::span<const CopyPiece> pieces, bool sends);
  // What take() and give() collect goes to the stream together, before the next copies.
  std::vector<CUstreamBatchMemOpParams>& operations(bool sends) {
    return operations_[sends || receiving_ == sending_ ? 0 : 1];
  }
  void move(bool sends);  // what is in moves_
  void flush(bool sends);
  std::string find_out();
  void stand_guard();
  uint32_t waited_in_vain(std::chrono::steady_clock::time_point now);

  const int rank_, device_;
  const double timeout_s_;
  HostFlags* const flags_;
  std::string missing_;
  bool batches_ = false;  // copies may be handed over together
  unsigned wait_flags_ = CU_STREAM_WAIT_VALUE_EQ;
  unsigned logged_ = 0;  // a bit per kind
  size_t slot_bytes_ = 0;
  std::vector<Ends> ends_;  // [peer]
  volatile CopyBoard* board_ = nullptr;
  CUdeviceptr waiting_ = 0;  // CopyBoard::waiting on the device

  // Of the operation under way.
  cudaStream_t sending_ = nullptr, receiving_ = nullptr;
  bool captured_ = false;
  std::vector<OwnCopy> moves_;
  std::vector<CUstreamBatchMemOpParams> operations_[2];

  const PooledResource pooled_second_{DeviceStore::Kind::kStream},
      pooled_fork_{DeviceStore::Kind::kEvent}, pooled_join_{DeviceStore::Kind::kEvent};
  const cudaStream_t second_ = pooled_second_.stream();  // for receiving
  const cudaEvent_t fork_ = pooled_fork_.event(), join_ = pooled_join_.event();
  bool alone_ = false;

  // The guard ends waits: when it or a kernel is told to, when a peer has left, or after the
  // timeout.
  std::thread guard_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false, leaving_ = false;
  uint32_t gone_ = 0;  // a bit per rank that has left
  CopyBoard seen_{};   // what the guard saw last, and since when nothing has changed
  std::chrono::steady_clock::time_point seen_at_;
};

}  // namespace weft::cuda
