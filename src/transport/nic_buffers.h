// The caller's buffers that the NICs of a rank reach, so that data goes between them and the wire
// without a copy in the GPU. One table per rank. Its owner (exec/cuda/own_memory.h) puts
// allocations there and takes them out. Every stream registers them with its connection the next
// time it looks. A buffer may be used when all streams have it. So no call waits for a
// registration.
//
// Places are plain addresses of this process. A rank tells them to its peers, which name them with
// the data. A stream moves nothing to or from an address that is not in its table.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/base/handles.h"
#include "src/transport/network.h"

namespace weft {

class NicBuffers {
 public:
  static constexpr size_t kSlots = 512;
  enum class State : uint8_t { kPending, kReady, kRefused };

  // A stream of the rank, before the first put(). Returns its number.
  size_t join() { return streams_++; }

  // The owner's, one thread at a time. `dma_buf`: empty if NICs get the address. -1: there is no
  // room.
  int put(std::byte* data, size_t bytes, Fd dma_buf);
  // Nothing uses the memory any more. Streams deregister it soon.
  void take_out(int slot);
  State state(int slot);
  // Closes descriptors that all streams are done with. True: some still need theirs.
  bool tidy();

  // Streams, any thread.
  struct Buffer {
    std::byte* data = nullptr;
    size_t bytes = 0;
    int dma_buf = -1;
  };
  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  // Odd: there is a buffer.
  uint64_t generation(size_t slot) const {
    return slots_[slot].generation.load(std::memory_order_acquire);
  }
  // Stays as it is until all streams have answered.
  Buffer buffer(size_t slot) const {
    const Slot& s = slots_[slot];
    return {s.data, s.bytes, s.dma_buf ? s.dma_buf.get() : -1};
  }
  void answer(size_t slot, size_t stream, uint64_t generation, bool good) {
    answers_[slot * streams_ + stream].store(generation << 1 | (good ? 0 : 1),
                                             std::memory_order_release);
  }

  // Messages that were sent from buffers, and that came into them.
  std::atomic<uint64_t> sent{0}, received{0};

 private:
  struct Slot {
    std::atomic<uint64_t> generation{0};
    std::byte* data = nullptr;
    size_t bytes = 0;
    Fd dma_buf;
    bool ready = false;  // as the owner knows
  };
  State answers(size_t slot) const;

  size_t streams_ = 0;
  std::array<Slot, kSlots> slots_;
  std::vector<std::atomic<uint64_t>> answers_;  // by slot and stream: generation, and whether bad
  std::atomic<uint64_t> version_{0};
};

// What a stream has registered. Used by one thread at a time, like its comm.
class NicRegistrations {
 public:
  // `buffers`: nullptr if there are none. `pointers`: the kinds that the device takes.
  NicRegistrations(std::shared_ptr<NicBuffers> buffers, int pointers);

  // Registers what is new and deregisters what is gone. Costs next to nothing if nothing has
  // changed.
  void catch_up(NetComm& comm) noexcept {
    if (buffers_ != nullptr && buffers_->version() != seen_) look(comm);
  }
  struct Memory {
    std::byte* data = nullptr;  // nullptr: not all of it is registered
    void* registration = nullptr;
  };
  Memory find(uint64_t address, uint64_t bytes) const noexcept;
  void count_sent() noexcept { buffers_->sent.fetch_add(1, std::memory_order_relaxed); }
  void count_received() noexcept { buffers_->received.fetch_add(1, std::memory_order_relaxed); }

 private:
  struct Known {
    size_t slot = 0;
    NicBuffers::Buffer buffer;
    void* registration = nullptr;
  };
  void look(NetComm& comm) noexcept;
  void forget(NetComm& comm, const NicBuffers::Buffer& buffer) noexcept;
  bool add(NetComm& comm, size_t slot) noexcept;

  const std::shared_ptr<NicBuffers> buffers_;
  const size_t stream_;
  const int pointers_;
  uint64_t seen_ = 0;
  std::vector<uint64_t> generations_;  // by slot
  std::vector<Known> known_;
};

}  // namespace weft
