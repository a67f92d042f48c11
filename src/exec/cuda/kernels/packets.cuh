// The low-latency protocol: FIFOs of packets. A packet has 8 bytes of data and its flags in one
// 16-byte store. So the data needs no fence, and a reader needs no second load. A thread that waits
// for a packet waits for nothing else.
#pragma once

#include "src/exec/cuda/kernels/memory.cuh"
#include "src/exec/cuda/kernels/numbers.cuh"
#include "src/exec/cuda/kernels/words.cuh"

namespace weft::cuda {

// One operand of a movement, as a thread sees it: eight bytes of memory, or a packet.
struct PacketEnd {
  std::byte* at;
  uint32_t flag;  // the message's number on its port
  uint16_t port;
  bool message;
};

__device__ inline int peer_of(const DeviceComm& comm, uint32_t port) {
  return static_cast<int>(port % static_cast<uint32_t>(comm.nranks));
}

// A thread block's ports, in shared memory: the messages that each had carried when the kernel
// began.
class PacketPorts {
 public:
  // Loads the counters. In two halves, so that this load overlaps with loading the other
  // parameters. Needs a __syncthreads() afterwards.
  static __device__ uint4 ask(Mailbox* mine, uint32_t ports) {
    return threadIdx.x < ports ? load_counters(own(mine, ports) + threadIdx.x) : uint4{};
  }
  __device__ void take(const uint4& counters, uint32_t ports) {
    if (threadIdx.x < ports) before_[threadIdx.x] = counters;
  }

  // The number of the message that is the `n`-th on its port in this kernel.
  __device__ uint32_t sent(uint32_t port, uint32_t n) const { return before_[port].x + n; }
  __device__ uint32_t received(uint32_t port, uint32_t n) const { return before_[port].y + n; }

  // Waits until the peer has room for message `flag`. False: all threads must stop.
  __device__ bool wait_for_room(const DeviceComm& comm, uint32_t port, uint32_t flag) const {
    if (flag - before_[port].z <= kPacketSlots) return true;
    const uint32_t* consumed = &own(comm.mailboxes[comm.rank], comm.ports)[port].consumed;
    const int peer = peer_of(comm, port);
    return wait_until(comm, peer, [&] { return flag - load_volatile(consumed) <= kPacketSlots; });
  }

  // Called after all threads have read message `flag`. Returns its room to the peer.
  static __device__ void give_back(const DeviceComm& comm, uint32_t port, uint32_t flag) {
    const int peer = peer_of(comm, port);
    const int channel = static_cast<int>(port / static_cast<uint32_t>(comm.nranks));
    uint32_t* to = &own(comm.mailboxes[peer], comm.ports)[comm.port(comm.rank, channel)].consumed;
    store_volatile(to, flag);
  }

  // Stores a counter for the next kernel.
  static __device__ void keep_sent(Mailbox* mine, uint32_t ports, uint32_t port, uint32_t flag) {
    own(mine, ports)[port].sent = flag;
  }
  static __device__ void keep_received(Mailbox* mine, uint32_t ports, uint32_t port,
                                       uint32_t flag) {
    own(mine, ports)[port].received = flag;
  }

  // Bytes from a port's first slot of block 0 to the slot of a message of this block.
  static __device__ uint32_t slot_offset(uint32_t ports, uint32_t flag) {
    return (blockIdx.x * ports * kPacketSlots + flag % kPacketSlots) *
           static_cast<uint32_t>(kSlotPackets * sizeof(Packet));
  }

 private:
  static __device__ PortCounters* own(Mailbox* mailbox, uint32_t ports) {
    return port_counters(mailbox) + blockIdx.x * ports;
  }

  uint4 before_[kMaxPorts];  // as PortCounters
};

// Waits until all of up to `Batch` words have arrived; words in plain memory count as arrived.
// `source(b)` is a PacketEnd. A packet's second flag is mixed with `signature`, so a peer that runs
// another call is detected. A packet may arrive in two halves, so a mismatch counts only if it
// persists. False: all threads must stop.
template <int Batch, typename Source>
__device__ __forceinline__ bool wait_for_words(const DeviceComm& comm, Source source,
                                               uint32_t signature, uint64_t (&words)[Batch]) {
  int peer = -1;         // the peer waited for
  uint32_t foreign = 0;  // polls in a row that saw the right number but another call
  return wait_until(comm, peer, [&] {
    Packet packets[Batch];
#pragma unroll
    for (int b = 0; b < Batch; b++)
      if (const PacketEnd end = source(b); end.message)
        packets[b] = load_packet(reinterpret_cast<const Packet*>(end.at));
    bool all = true, strange = false;
    uint32_t port = 0;
#pragma unroll
    for (int b = 0; b < Batch; b++) {
      const PacketEnd end = source(b);
      if (!end.message) continue;
      words[b] = static_cast<uint64_t>(packets[b].data1) << 32 | packets[b].data0;
      const bool same_number = packets[b].flag0 == end.flag,
                 same_call = packets[b].flag1 == (end.flag ^ signature);
      if (same_number && same_call) continue;
      all = false;
      strange = strange || same_number;
      port = end.port;
    }
    if (all) return true;
    peer = peer_of(comm, port);
    foreign = strange ? foreign + 1 : 0;
    if (foreign > 4096) report(comm, KernelError::kOtherCall, peer);
    return false;
  });
}

}  // namespace weft::cuda
