// The low-latency protocol: FIFOs of packets, 8 bytes of data with flags beside them in one 16-byte
// store, so that data needs no fence and a reader no second look. A thread that waits for a packet
// waits for nothing else.
#pragma once

#include "src/exec/cuda/memory.cuh"
#include "src/exec/cuda/numbers.cuh"

namespace weft::cuda {

// One end of a movement: memory of this GPU's own, or the packets of a message.
struct alignas(16) PackedEnd {
  std::byte* at;
  uint32_t flag;  // the message's number on its port
  uint16_t port;
  bool message;  // packets, not plain memory
  bool full;     // the peer had not taken enough when the kernel began: look again

  __device__ Packet* packets() const { return reinterpret_cast<Packet*>(at); }
};

__device__ inline int peer_of(const DeviceComm& comm, const PackedEnd& end) {
  return static_cast<int>(end.port % static_cast<uint32_t>(comm.nranks));
}

// A thread block's ports and how many messages have gone through each, in shared memory. All
// threads call all functions except where it says otherwise.
class PackedPorts {
 public:
  // The counters, in two halves so that this trip to memory goes side by side with fetching the
  // kernel's other parameters. Needs a __syncthreads() afterwards.
  static __device__ uint4 ask(Mailbox* mine, uint32_t ports) {
    return threadIdx.x < ports ? load_counters(own(mine, ports) + threadIdx.x) : uint4{};
  }
  __device__ void take(const uint4& counters, uint32_t ports) {
    if (threadIdx.x >= ports) return;
    sent_[threadIdx.x] = counters.x;
    received_[threadIdx.x] = counters.y;
    consumed_[threadIdx.x] = counters.z;
  }

  // Thread-local: the next message to or from `peer` on a channel. One thread per port.
  __device__ PackedEnd next_send(const DeviceComm& comm, int peer, int channel) {
    const uint32_t port = comm.port(peer, channel), flag = ++sent_[port];
    return {slot(comm, peer, comm.port(comm.rank, channel), flag), flag,
            static_cast<uint16_t>(port), true, flag - consumed_[port] > kPackedSlots};
  }
  __device__ PackedEnd next_receive(const DeviceComm& comm, int peer, int channel) {
    const uint32_t port = comm.port(peer, channel), flag = ++received_[port];
    return {slot(comm, comm.rank, port, flag), flag, static_cast<uint16_t>(port), true, false};
  }

  // Thread-local: waits until the peer has room for the message.
  __device__ bool wait_for_room(const DeviceComm& comm, const PackedEnd& end) const {
    if (!end.full) return true;
    const uint32_t* consumed = &own(comm.mailboxes[comm.rank], comm.ports)[end.port].consumed;
    const int peer = peer_of(comm, end);
    return wait_until(comm, peer,
                      [&] { return end.flag - load_volatile(consumed) <= kPackedSlots; });
  }

  // Thread-local, after all threads have read the message: gives its room back.
  __device__ void give_back(const DeviceComm& comm, const PackedEnd& end) const {
    const int peer = peer_of(comm, end);
    const int channel = static_cast<int>(end.port / static_cast<uint32_t>(comm.nranks));
    uint32_t* to = &own(comm.mailboxes[peer], comm.ports)[comm.port(comm.rank, channel)].consumed;
    *static_cast<volatile uint32_t*>(to) = end.flag;
  }

  // Keeps the counters for the next kernel.
  __device__ void store(Mailbox* mine, uint32_t ports) const {
    if (threadIdx.x >= ports) return;
    PortCounters& to = own(mine, ports)[threadIdx.x];
    to.sent = sent_[threadIdx.x];
    to.received = received_[threadIdx.x];
  }

 private:
  static __device__ PortCounters* own(Mailbox* mailbox, uint32_t ports) {
    return port_counters(mailbox) + blockIdx.x * ports;
  }
  static __device__ std::byte* slot(const DeviceComm& comm, int owner, uint32_t port,
                                    uint32_t flag) {
    const uint64_t index = (static_cast<uint64_t>(blockIdx.x) * comm.ports + port) * kPackedSlots +
                           flag % kPackedSlots;
    Packet* slots = packed_slots(comm.mailboxes[owner], comm.packed_ctas, comm.ports);
    return reinterpret_cast<std::byte*>(slots + index * kSlotPackets);
  }

  uint32_t sent_[kMaxPorts], received_[kMaxPorts], consumed_[kMaxPorts];
};

// Eight bytes of memory as a thread sees them; what lies behind `bytes` reads as zero and is not
// written. Wide where the address allows.
__device__ inline uint64_t load_word(const std::byte* at, uint64_t left) {
  if ((reinterpret_cast<uintptr_t>(at) & 7) == 0 && left >= 8)
    return *reinterpret_cast<const volatile uint64_t*>(at);
  uint64_t v = 0;
  if ((reinterpret_cast<uintptr_t>(at) & 3) == 0 && left >= 8) {
    v = *reinterpret_cast<const volatile uint32_t*>(at);
    return v | static_cast<uint64_t>(reinterpret_cast<const volatile uint32_t*>(at)[1]) << 32;
  }
  for (uint32_t i = 0; i < 8; i++)
    if (i < left)
      v |= static_cast<uint64_t>(reinterpret_cast<const volatile uint8_t*>(at)[i]) << (8 * i);
  return v;
}
__device__ inline void store_word(std::byte* at, uint64_t left, uint64_t v) {
  if ((reinterpret_cast<uintptr_t>(at) & 7) == 0 && left >= 8) {
    *reinterpret_cast<volatile uint64_t*>(at) = v;
  } else if ((reinterpret_cast<uintptr_t>(at) & 3) == 0 && left >= 8) {
    reinterpret_cast<volatile uint32_t*>(at)[0] = static_cast<uint32_t>(v);
    reinterpret_cast<volatile uint32_t*>(at)[1] = static_cast<uint32_t>(v >> 32);
  } else {
    for (uint32_t i = 0; i < 8; i++)
      if (i < left) reinterpret_cast<volatile uint8_t*>(at)[i] = static_cast<uint8_t>(v >> (8 * i));
  }
}

// Asks for the words of up to `Batch` sources at once and waits until all are there. `signature`
// is what a packet's second flag is mixed with: a peer that means another call is found out. False:
// everyone must stop.
template <int Batch>
__device__ __forceinline__ bool load_words(const DeviceComm& comm, const PackedEnd* sources,
                                           int count, uint64_t p, uint64_t left, uint32_t signature,
                                           uint64_t (&words)[Batch]) {
#pragma unroll
  for (int b = 0; b < Batch; b++)
    if (b < count && !sources[b].message)
      words[b] = left > 0 ? load_word(sources[b].at + p * 8, left) : 0;
  int peer = -1;  // who is waited for
  uint32_t looks = 0;
  const bool there = wait_until(comm, peer, [&] {
    Packet packets[Batch];
#pragma unroll
    for (int b = 0; b < Batch; b++)
      if (b < count && sources[b].message) packets[b] = load_packet(sources[b].packets() + p);
    bool all = true;
#pragma unroll
    for (int b = 0; b < Batch; b++) {
      if (b >= count || !sources[b].message) continue;
      const uint32_t flag = sources[b].flag;
      words[b] = static_cast<uint64_t>(packets[b].data1) << 32 | packets[b].data0;
      if (packets[b].flag0 == flag && packets[b].flag1 == (flag ^ signature)) continue;
      all = false;
      if (looks < 256) continue;
      peer = peer_of(comm, sources[b]);
      if (packets[b].flag0 == flag) report(comm, 1, peer, signature, packets[b].flag1 ^ flag);
    }
    looks++;
    return all;
  });
  return there;
}

// Gives one word to every destination. False: the host asked everyone to stop.
__device__ __forceinline__ bool store_words(const DeviceComm& comm, const PackedPorts& ports,
                                            const PackedEnd* destinations, uint32_t count,
                                            uint64_t p, uint64_t left, uint32_t signature,
                                            uint64_t word) {
  for (uint32_t d = 0; d < count; d++) {
    const PackedEnd& to = destinations[d];
    if (!to.message) {
      if (left > 0) store_word(to.at + p * 8, left, word);
      continue;
    }
    if (!ports.wait_for_room(comm, to)) return false;
    store_packet(to.packets() + p, static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32),
                 to.flag, to.flag ^ signature);
  }
  return true;
}

}  // namespace weft::cuda
