// One direction of one FIFO between ranks of different hosts, over a Network. Both sides have a
// ring in their own memory (fifo.h). The sender's messages become network messages unchanged. The
// receiver puts each network message into a slot of its ring.
//
// Large messages can bypass the rings. The producer lends its memory (kPointer, as to a peer of the
// same process). Its ring then holds only the header, and the data is a network message of its own.
// A waiting consumer says where the data should go (FifoControl::wanted), and finds it there. In
// the same way GPUs let equal messages to several peers share one copy (Interpreter::shared_port).
// This needs a plugin with our extension.
//
// With other plugins, memory must be registered. In host mode they send memory from ncclMemAlloc as
// it lies (segment_registrations.h): its data is a network message of its own, too, but it arrives
// in the next slot. Slots then have room in front for the header.
//
// The user of the ring needs only the counters and the message format. It is a lane of the host, or
// a GPU with the ring in pinned memory.
#pragma once

#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/base/handles.h"
#include "src/transport/fifo.h"
#include "src/transport/network.h"
#include "src/transport/segment_registrations.h"
#include "src/transport/stream_observer.h"

namespace weft {

class Proxy;

// Bytes per slot of the receiving ring. Every message fits into one.
uint64_t slot_size(uint64_t ring_bytes);

// Why a connection ended. ncclRemoteError: the peer has gone, or seems to.
struct StreamFailure {
  ncclResult_t code = ncclSuccess;
  std::string text;  // the plugin's; empty if the connection did not fail
};

// Proxies call all functions except the constructor. They hold the lock of the stream's own proxy,
// either exclusively or shared with a claim.
class NetStream {
 public:
  NetStream(NetComm comm, Proxy& proxy, Mapping ring, Doorbell& rank_door, std::atomic<bool>* lost);
  virtual ~NetStream() = default;
  NetStream(const NetStream&) = delete;
  NetStream& operator=(const NetStream&) = delete;

  Proxy& proxy() const { return proxy_; }
  // Streams of a higher class go first, see Proxy::set_priority().
  int priority() const { return priority_; }
  void set_priority(int priority) { priority_ = priority; }
  // Keeps the ring's memory alive for its user, who may have pinned it.
  std::shared_ptr<const void> memory() const { return memory_; }
  // Any thread may ask. Everything that came before is in the ring.
  bool broken() const { return broken_.load(std::memory_order_acquire); }
  const StreamFailure& failure() const { return failure_; }
  // Moves the data that can be moved now, or the first of it: true if it moved any, and then there
  // may be more. `eager`: does not wait for a consumer to say where it wants its data.
  virtual bool progress(bool eager) noexcept = 0;
  // The same for a proxy that polls. `round` counts its polls. A stream that must ask the kernel
  // and had no news for long is skipped in most rounds. `patient`: long is longer.
  using Clock = std::chrono::steady_clock;
  bool look(uint32_t round, Clock::time_point now, bool patient) noexcept;
  // Only one of several proxies holds the claim, until release(). False: another proxy holds it.
  bool claim() noexcept {
    return !claimed_.load(std::memory_order_relaxed) &&
           !claimed_.exchange(true, std::memory_order_acquire);
  }
  void release() noexcept { claimed_.store(false, std::memory_order_release); }
  // Whether other proxies may poll it. Foreign plugins may require one thread.
  virtual bool takes_help() const { return takes_help_; }
  // Whether there is data left to send.
  virtual bool unsent() const { return false; }
  int waits_for(pollfd* descriptors, int most) const noexcept;
  // False: the plugin has nothing to sleep on, so it must be polled.
  bool can_sleep() const { return !comm_ || comm_.network().can_sleep(); }
  // Closes the connection. From now on nobody accesses the memory of lanes.
  void abandon() noexcept;
  // Reports messages from now on, and the messages received already. Nothing has been sent yet.
  virtual void observe(std::unique_ptr<StreamObserver> observer);

 protected:
  virtual bool idle() const = 0;         // no request in flight
  virtual bool asks_kernel() const = 0;  // to find out whether there is anything to do
  void fail(ncclResult_t code) noexcept {
    if (!broken()) fail(code, comm_.network().reason());
  }
  void fail(ncclResult_t code, std::string why) noexcept;
  // The peer has left, or its connections have failed.
  bool peer_gone() const { return lost_ != nullptr && lost_->load(); }
  FifoControl& fifo() const { return *reinterpret_cast<FifoControl*>(ring_.data()); }
  // The ring's counters. Lanes or GPUs change them too.
  static uint64_t load(const uint64_t& at) { return __atomic_load_n(&at, __ATOMIC_SEQ_CST); }
  static void store(uint64_t& at, uint64_t value) {
    __atomic_store_n(&at, value, __ATOMIC_SEQ_CST);
  }
  // Reports to the observers, see StreamObserver. The messages are contiguous, `bytes` in total. A
  // skipped stretch ends them.
  bool observed() const { return observers_ != nullptr; }
  [[gnu::cold]] void tell_announced() noexcept;
  [[gnu::cold]] void tell_sent(const std::byte* data, uint64_t bytes) noexcept;
  [[gnu::cold]] void tell_landed() noexcept;
  [[gnu::cold]] void tell_received(const std::byte* data, uint64_t bytes) noexcept;
  static std::vector<CarriedMessage> carried(const std::byte* data, uint64_t bytes);

  const std::shared_ptr<const Mapping> memory_;  // FifoControl, then the bytes
  const Mapping& ring_ = *memory_;
  NetComm comm_;
  Bell rank_bell_;

 private:
  Proxy& proxy_;
  int priority_ = 0;
  // Set when the connection ends, for threads that wait for this peer.
  std::atomic<bool>* const lost_;
  std::atomic<bool> broken_{false};
  uint32_t fruitless_ = 0;  // polls since the last news
  Clock::time_point last_news_;
  const bool takes_help_;
  std::atomic<bool> claimed_{false};
  StreamFailure failure_;
  using Observers = std::vector<std::unique_ptr<StreamObserver>>;
  std::unique_ptr<Observers> observers_;  // nullptr: none
};

class OutStream final : public NetStream {
 public:
  // `segments`: memory from ncclMemAlloc is sent as it lies. Both ends must choose alike.
  OutStream(NetComm comm, Proxy& proxy, uint64_t ring_bytes, Doorbell& rank_door,
            std::atomic<bool>* lost, bool segments = false);
  SendPort port(int peer_rank);
  bool progress(bool eager) noexcept override;
  bool unsent() const override;

 protected:
  bool idle() const override { return flying_ == 0; }
  bool asks_kernel() const override { return flying_ > 0; }

 private:
  bool complete_some() noexcept;
  bool send_next() noexcept;
  bool prepare_body(const MessageHeader& header, uint64_t end) noexcept;
  bool send_body() noexcept;

  static constexpr size_t kMostFlying = 8;
  struct Flight {
    void* request = nullptr;
    uint64_t end = 0;  // the ring is free up to here when the message has landed
    void* body = nullptr;
  };
  // Data that is a network message of its own.
  struct Body {
    std::byte* data = nullptr;  // nullptr: none waits to be sent
    uint64_t bytes = 0;
    void* registration = nullptr;
  };
  const uint64_t ring_bytes_;
  const bool segments_;
  void* registration_ = nullptr;
  SegmentRegistrations registered_;
  Body body_;                // of the last flight
  Mapping copy_;             // for memory that the network does not take
  Body copy_place_;          // in it
  uint64_t copy_until_ = 0;  // it is in use until the ring is free up to here
  uint64_t taken_ = 0;       // bytes of the ring handed to the network so far
  std::array<Flight, kMostFlying> flights_;
  size_t first_ = 0, flying_ = 0;
};

class InStream final : public NetStream {
 public:
  InStream(NetComm comm, Proxy& proxy, uint64_t ring_bytes, Doorbell& rank_door,
           std::atomic<bool>* lost, bool segments = false);
  RecvPort port(int peer_rank);
  bool progress(bool eager) noexcept override;
  void observe(std::unique_ptr<StreamObserver> observer) override;

 protected:
  bool idle() const override { return body_header_ != nullptr ? body_ == nullptr : flying_ == 0; }
  bool asks_kernel() const override { return true; }

 private:
  bool receive_some() noexcept;
  bool receive_body(bool eager) noexcept;
  bool accept_slot(uint64_t size) noexcept;
  bool accept_body(uint64_t size) noexcept;
  void finish_slot(uint64_t used) noexcept;
  void skip(uint64_t at, uint64_t bytes) noexcept;  // of the next slot
  std::byte* slot(uint64_t number) const;

  static constexpr uint64_t kSlots = 4;
  const uint64_t lead_;  // bytes of a slot in front of what arrives
  const uint64_t slot_bytes_;
  void* registration_ = nullptr;
  uint64_t finished_ = 0;  // slots whose data lanes can see
  std::array<void*, kSlots> requests_{};
  uint64_t flying_ = 0;  // receives posted for the slots from finished_ on
  // A message whose header has arrived and whose data comes next.
  MessageHeader* body_header_ = nullptr;
  uint64_t body_at_ = 0;  // offset of the header in its slot
  void* body_ = nullptr;  // request
  bool body_direct_ = false;
  MessageHeader detached_;  // its data comes in the next slot, if it has a kind
};

}  // namespace weft
