// Moves data between ranks of a host without thread blocks. Copies prefer the copy engines. Stream
// memory operations order them. Streams wait for words in pinned host memory, so the CPU can end a
// wait.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
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

// Offset of the CopyBoard on a rank's board: on its own page. The list of shared memory follows.
inline constexpr size_t kCopyBoardAt = 0, kCopyBoardBytes = 4096;
inline constexpr size_t kSharedListAt = kCopyBoardAt + kCopyBoardBytes;

// The words that a rank waits for are on its own board; peers set them. Every word is a binary
// semaphore: one side sets it, the other waits for it and clears it. Nothing is counted, so graphs
// can be replayed.
struct CopyBoard {
  uint32_t full[kMaxRanks][kCopySlots];   // [sender]: its slot in my memory
  uint32_t empty[kMaxRanks][kCopySlots];  // [receiver]: my slot in its memory
  // For the guard: the peer + 1 that the stream waits for; [0] when sending, [1] when receiving.
  uint32_t waiting[2];
};

// One thread at a time uses it, with its device current. stop() and peer_left(): any thread.
class CopyEngine : private CopyQueue {
 public:
  struct Peer {
    std::byte* stage = nullptr;  // its slots, kCopySlots for every sender
    std::byte* board = nullptr;  // its CopyBoard, mapped here
    bool same_gpu = true;
  };

  // Checks whether the GPU supports copy-engine mode. Waits that time out are reported in `flags`.
  CopyEngine(int rank, int device, double timeout_s, HostFlags* flags);
  ~CopyEngine() override;
  CopyEngine(const CopyEngine&) = delete;
  CopyEngine& operator=(const CopyEngine&) = delete;

  // Why copy engines cannot be used; empty if they can.
  const std::string& missing() const { return missing_; }
  bool connected() const { return !ends_.empty(); }
  size_t slot_bytes() const { return slot_bytes_; }
  // Called before the ranks meet for the last time at init. `alone`: no other rank of this process
  // uses the GPU, so sending and receiving may have a stream each. `shared` pins the boards. It
  // outlives all ranks of this process.
  void connect(std::span<const Peer> peers, size_t slot_bytes, bool alone, SharedMemory& shared);

  // Puts one operation on a stream.
  void run(const CopyWork& work, cudaStream_t stream, bool captured);
  // Logs why an operation needs kernels, once per kind.
  void tell_of_kernels(CollectiveKind kind, const char* why);

  // Ends every wait, now and later.
  void stop() noexcept;
  // Waits for this rank end with an error.
  void peer_left(int rank) noexcept;

 private:
  // One peer's words and slots, as the device sees them.
  struct Ends {
    CUdeviceptr full = 0, empty = 0;              // this rank waits for these, [slot]
    CUdeviceptr their_full = 0, their_empty = 0;  // this rank sets these
    // This rank writes to their_slots and reads from slots.
    std::byte *their_slots = nullptr, *slots = nullptr;
  };

  void copy_own(const OwnCopy& copy) override;
  void send(std::span<const CopyPiece> pieces) override;
  void receive(std::span<const CopyPiece> pieces) override;
  void take(std::span<const CopyPiece> pieces, bool sends);
  void give(std::span<const CopyPiece> pieces, bool sends);
  // take() and give() collect operations. They go to the stream together, before the next copies.
  std::vector<CUstreamBatchMemOpParams>& operations(bool sends) {
    return operations_[sends || receiving_ == sending_ ? 0 : 1];
  }
  void move(bool sends);  // does the copies in moves_
  void flush(bool sends);
  std::string find_out();
  void stand_guard();
  uint64_t waited_in_vain(std::chrono::steady_clock::time_point now);

  const int rank_, device_;
  const double timeout_s_;
  HostFlags* const flags_;
  std::string missing_;
  bool batches_ = false;  // one call can submit several copies
  unsigned wait_flags_ = CU_STREAM_WAIT_VALUE_EQ;
  std::atomic<unsigned> logged_{0};  // a bit per kind; any thread may ask what is copied
  size_t slot_bytes_ = 0;
  std::vector<Ends> ends_;  // [peer]
  volatile CopyBoard* board_ = nullptr;
  CUdeviceptr waiting_ = 0;  // CopyBoard::waiting on the device

  // For the current operation.
  cudaStream_t sending_ = nullptr, receiving_ = nullptr;
  bool captured_ = false;
  std::vector<OwnCopy> moves_;
  std::vector<CUstreamBatchMemOpParams> operations_[2];

  const PooledResource pooled_second_{DeviceStore::Kind::kStream},
      pooled_fork_{DeviceStore::Kind::kEvent}, pooled_join_{DeviceStore::Kind::kEvent};
  const cudaStream_t second_ = pooled_second_.stream();  // for receiving
  const cudaEvent_t fork_ = pooled_fork_.event(), join_ = pooled_join_.event();
  bool alone_ = false;

  // The guard ends waits in these cases: somebody calls stop(), a kernel was told to stop, a peer
  // left, or the timeout passed.
  std::thread guard_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false, leaving_ = false;
  uint32_t gone_ = 0;  // a bit per rank that has left
  CopyBoard seen_{};   // the guard's last view, and the time of its last change
  std::chrono::steady_clock::time_point seen_at_;
};

}  // namespace weft::cuda
