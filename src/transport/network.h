// A network between hosts, from any plugin: one interface over all versions of NCCL's plugin ABI
// (net_abi/common.h has its rules). Calls return codes and never wait or throw. NetComm closes the
// comm it owns.
#pragma once

#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/base/seal.h"
#include "src/transport/net_abi/common.h"

namespace weft {

// A device's properties, in the terms of the newest version.
struct NetProperties {
  std::string name, pci_path;
  uint64_t guid = 0;
  int pointers = net_abi::kHostPointer;  // PointerKinds that it can send and receive
  bool global_registration = false, force_flush = false;
  int speed_mbps = 0, port = 0;
  float latency_us = 0;
  int max_comms = 0, max_receives = 1;
  size_t max_bytes = net_abi::kLargestIntSize;  // of one message
  int rail = net_abi::kUndefined, plane = net_abi::kUndefined;
};

using NetHandle = std::array<std::byte, net_abi::kHandleBytes>;

// Thread-safe for different comms, and for listening and connecting. Lives as long as a
// communicator: v11 and later have a context per communicator.
class Network {
 public:
  virtual ~Network() = default;

  virtual const std::string& name() const = 0;
  virtual int version() const = 0;
  virtual int devices() const = 0;
  virtual NetProperties properties(int device) = 0;  // throws Error
  // Merges devices into one whose connections use all of them; -1: the plugin cannot.
  virtual int merge(const std::vector<int>& devices) noexcept = 0;

  virtual ncclResult_t listen(int device, NetHandle& handle, void** comm) noexcept = 0;
  virtual ncclResult_t connect(int device, NetHandle& handle, void** comm) noexcept = 0;
  // Gives up a connect() that has made no comm yet, where the plugin can.
  virtual void cancel(NetHandle& handle) noexcept = 0;
  virtual ncclResult_t accept(void* listener, void** comm) noexcept = 0;
  virtual ncclResult_t close_send(void* comm) noexcept = 0;
  virtual ncclResult_t close_receive(void* comm) noexcept = 0;
  virtual ncclResult_t close_listen(void* comm) noexcept = 0;

  virtual ncclResult_t reg(void* comm, void* data, size_t size, net_abi::PointerKind kind,
                           void** registration) noexcept = 0;
  virtual ncclResult_t reg_dma_buf(void* comm, void* data, size_t size, uint64_t offset, int fd,
                                   void** registration) noexcept = 0;
  virtual ncclResult_t dereg(void* comm, void* registration) noexcept = 0;

  virtual ncclResult_t isend(void* comm, void* data, size_t size, void* registration,
                             void** request) noexcept = 0;
  virtual ncclResult_t irecv(void* comm, void* data, size_t size, void* registration,
                             void** request) noexcept = 0;
  // Makes data received into GPU memory visible there. A null request: nothing to do.
  virtual ncclResult_t flush(void* comm, void* data, int size, void* registration,
                             void** request) noexcept = 0;
  virtual ncclResult_t test(void* request, bool& done, size_t& size) noexcept = 0;

  // Beyond the ABI (net_abi/extension.h). Only our own plugins have these, and not all have all.
  virtual bool can_lend() const = 0;   // has isend_two(), and can send unregistered memory
  virtual bool can_sleep() const = 0;  // has waits_for()
  virtual bool can_seal() const = 0;   // does what WEFT_WIRE asks for
  // For this thread's listen() and connect(): the communicator's secret, and how to protect data.
  // nullptr: neither from now on.
  virtual void use_secret(const Secret* secret, Wire wire) noexcept = 0;
  virtual ncclResult_t isend_two(void* comm, void* head, size_t head_size, void* body,
                                 size_t body_size, void** request) noexcept = 0;
  virtual int waits_for(void* comm, pollfd* descriptors, int most) noexcept = 0;

  // 0: the plugin does not know, or the peer is on this machine.
  virtual double round_trip_us(void* comm) noexcept = 0;

  // Why the last call of this thread failed, if the plugin said so.
  virtual std::string reason() const = 0;
};

std::vector<NetProperties> devices_of(Network& network);  // throws Error

// A comm of one kind, with the memory registered for it.
class NetComm {
 public:
  enum class Kind : uint8_t { kListen, kSend, kReceive };
  NetComm() = default;
  NetComm(std::shared_ptr<Network> network, void* comm, Kind kind)
      : network_(std::move(network)), comm_(comm), kind_(kind) {}
  NetComm(NetComm&& other) noexcept
      : network_(std::move(other.network_)),
        comm_(std::exchange(other.comm_, nullptr)),
        kind_(other.kind_),
        registrations_(std::move(other.registrations_)) {}
  NetComm& operator=(NetComm&& other) noexcept;
  ~NetComm() { close(); }

  explicit operator bool() const { return comm_ != nullptr; }
  void* get() const { return comm_; }
  Network& network() const { return *network_; }
  // Throws Error. Deregistered when the comm closes.
  void* reg(void* data, size_t size, net_abi::PointerKind kind = net_abi::kHostPointer);
  // The same for GPU memory, by its descriptor (-1: it has none) if the device takes those.
  void* reg_gpu(void* data, size_t size, int dma_buf, int pointers);
  void dereg(void* registration) noexcept;  // before that

 private:
  void close() noexcept;

  std::shared_ptr<Network> network_;
  void* comm_ = nullptr;
  Kind kind_ = Kind::kListen;
  std::vector<void*> registrations_;
};

}  // namespace weft
