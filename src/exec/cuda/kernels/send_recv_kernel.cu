// Send and receive: all of a rank's messages of a group in one kernel. Small messages travel as
// packets. Receivers read large messages from the senders' memory. This has its own file so that
// the compiler specializes copy() for its only caller.
#include "src/exec/cuda/kernels/combine.cuh"
#include "src/exec/cuda/kernels/kernels.h"
#include "src/exec/cuda/kernels/packets.cuh"

namespace weft::cuda {
namespace {

struct SendRecvState {
  const std::byte* sources[kMaxRanks];
  bool stopped;
  PacketPorts ports;
};

// `Packets`: all messages go in packets. Such a kernel needs few registers and can start early.
template <bool Packets>
class SendRecvRunner {
 public:
  __device__ SendRecvRunner(const SendRecvArguments& a, SendRecvState& shared)
      : a_(a), comm_(a.comm), mine_(*a.mine), shared_(shared) {}

  __device__ void run() {
    if (!Packets) announce();
    run_packets();
    if (Packets) return;
    hear();
    __syncthreads();
    if (shared_.stopped) return;
    take();
    __syncthreads();
    acknowledge();
  }

 private:
  using Message = SendRecvArguments::Message;

  // Thread t handles the t-th message of each direction.
  __device__ static bool takes_part(const Message* messages, uint32_t count, bool packets) {
    return threadIdx.x < count && messages[threadIdx.x].packets == packets &&
           blockIdx.x < messages[threadIdx.x].ctas;
  }
  __device__ bool sends() const { return takes_part(a_.sends, a_.send_count, false); }
  __device__ bool receives() const { return takes_part(a_.receives, a_.receive_count, false); }

  __device__ void announce() {
    if (!sends()) return;
    const Message& m = a_.sends[threadIdx.x];
    Announcement& to = comm_.mailboxes[m.peer]->messages[blockIdx.x][comm_.rank];
    const uint32_t flag = mine_.sent[blockIdx.x][m.peer] + 1;
    store_packet(&to.input, m.place, flag);
    store_packet(&to.output, m.bytes, flag);
  }

  __device__ void hear() {
    if (!receives()) return;
    const Message& m = a_.receives[threadIdx.x];
    const Announcement& from = mine_.messages[blockIdx.x][m.peer];
    const uint32_t flag = mine_.received[blockIdx.x][m.peer] + 1;
    Packet place, bytes;
    if (!wait_until(comm_, m.peer, [&] {
          place = load_packet(&from.input);
          bytes = load_packet(&from.output);
          return place.flag0 == flag && place.flag1 == flag && bytes.flag0 == flag &&
                 bytes.flag1 == flag;
        })) {
      shared_.stopped = true;
      return;
    }
    // Reads of the peer's buffer come after this.
    load_acquire(&from.output.flag1, comm_.one_device);
    const auto join = [](const Packet& p) {
      return static_cast<uint64_t>(p.data1) << 32 | p.data0;
    };
    if (join(bytes) != m.bytes) {
      shared_.stopped = true;
      report(comm_, KernelError::kOtherCall, m.peer);
      return;
    }
    shared_.sources[threadIdx.x] = locate(m.peer, join(place));
  }

  // Between processes a message lies in a registration or, with number 0, in the sender's stage.
  __device__ const std::byte* locate(int peer, uint64_t place) const {
    if (comm_.one_process) return reinterpret_cast<const std::byte*>(place);
    const uint64_t offset = place & ((uint64_t{1} << kOffsetBits) - 1),
                   number = place >> kOffsetBits;
    if (number == 0) return reinterpret_cast<const std::byte*>(comm_.mailboxes[peer]) + offset;
    const uint64_t* mapped = comm_.registrations + peer * kPlaces + (number - 1);
    return reinterpret_cast<const std::byte*>(*static_cast<const volatile uint64_t*>(mapped) +
                                              offset);
  }

  // The threads divide the messages among themselves.
  __device__ void take() {
    uint32_t groups = 1;
    while (groups < a_.receive_count && groups < blockDim.x / 32) groups *= 2;
    const uint32_t threads = blockDim.x / groups;
    for (uint32_t r = threadIdx.x / threads; r < a_.receive_count; r += groups) {
      const Message& m = a_.receives[r];
      if (m.packets || blockIdx.x >= m.ctas) continue;
      const uintptr_t addresses =
          reinterpret_cast<uintptr_t>(shared_.sources[r]) | reinterpret_cast<uintptr_t>(m.pointer);
      copy<16>(shared_.sources[r], &m.pointer, 1, m.bytes, addresses % 16 == 0,
               {threadIdx.x % threads, threads, blockIdx.x, m.ctas});
    }
  }

  __device__ void acknowledge() {
    if (receives()) {
      const int peer = a_.receives[threadIdx.x].peer;
      const uint32_t number = ++mine_.received[blockIdx.x][peer];
      store_release(&comm_.mailboxes[peer]->acknowledgements[blockIdx.x][comm_.rank], number,
                    comm_.one_device);
    }
    if (!sends()) return;
    const int peer = a_.sends[threadIdx.x].peer;
    const uint32_t number = ++mine_.sent[blockIdx.x][peer];
    wait_until(comm_, peer, [&] {
      return static_cast<int32_t>(
                 load_acquire(&mine_.acknowledgements[blockIdx.x][peer], comm_.one_device) -
                 number) >= 0;
    });
  }

  // Bytes of this block from word p of a slice on, for a message in packets.
  __device__ static uint64_t left(const Message& m, uint32_t slice, uint32_t p) {
    if (!m.packets || blockIdx.x >= m.ctas) return 0;
    const uint64_t within = slice * kSlotBytes + p * 8;
    const uint64_t begin = uint64_t{blockIdx.x} * m.part + within;
    if (within >= m.part || begin >= m.bytes) return 0;
    const uint64_t all = m.bytes - begin, mine = m.part - within;
    return all < mine ? all : mine;
  }
  __device__ static std::byte* at(const Message& m, uint32_t slice, uint32_t p) {
    return m.pointer + uint64_t{blockIdx.x} * m.part + slice * kSlotBytes + p * 8;
  }
  __device__ Packet* packet(const Message& m, uint32_t flag, uint32_t p) const {
    return reinterpret_cast<Packet*>(m.slots + PacketPorts::slot_offset(a_.ports, flag)) + p;
  }
  __device__ uint32_t port(const Message& m) const { return comm_.port(m.peer, kSendRecvChannel); }
  // Both sides know the length of a message. The multiplication mixes the bits, because flags
  // differ in few bits. No half of an older or never written packet then looks like this message.
  __device__ static uint32_t signature(const Message& m) {
    return (static_cast<uint32_t>(m.bytes) + 1) * 0x9e3779b1u ^ 0x57454654u;
  }

  __device__ void run_packets() {
    for (uint32_t slice = 0; slice < a_.packet_slices; slice++) {
      // All sends come before the first wait.
      for_words(a_.sends, a_.send_count, slice, [&](const Message& m, uint32_t p, uint64_t rest) {
        const uint64_t word = load_word(at(m, slice, p), rest);
        const uint32_t flag = shared_.ports.sent(port(m), slice + 1);
        if (!shared_.ports.wait_for_room(comm_, port(m), flag)) return false;
        store_packet(packet(m, flag, p), static_cast<uint32_t>(word),
                     static_cast<uint32_t>(word >> 32), flag, flag ^ signature(m));
        return true;
      });
      for_words(a_.receives, a_.receive_count, slice,
                [&](const Message& m, uint32_t p, uint64_t rest) {
                  const uint32_t flag = shared_.ports.received(port(m), slice + 1);
                  const PacketEnd from = {reinterpret_cast<std::byte*>(packet(m, flag, p)), flag,
                                          static_cast<uint16_t>(port(m)), true};
                  uint64_t words[1];
                  if (!wait_for_words<1>(
                          comm_, [&](int) { return from; }, signature(m), words))
                    return false;
                  store_word(at(m, slice, p), rest, words[0]);
                  return true;
                });
      __syncthreads();
      if (shared_.stopped) return;
      if (threadIdx.x < a_.receive_count && left(a_.receives[threadIdx.x], slice, 0) > 0) {
        const Message& m = a_.receives[threadIdx.x];
        const uint32_t flag = shared_.ports.received(port(m), slice + 1);
        PacketPorts::give_back(comm_, port(m), flag);
        PacketPorts::keep_received(&mine_, a_.ports, port(m), flag);
      }
      if (threadIdx.x < a_.send_count && left(a_.sends[threadIdx.x], slice, 0) > 0) {
        const Message& m = a_.sends[threadIdx.x];
        PacketPorts::keep_sent(&mine_, a_.ports, port(m), shared_.ports.sent(port(m), slice + 1));
      }
    }
  }

  // Handles the words of all messages in packets in parallel.
  template <typename Each>
  __device__ __forceinline__ void for_words(const Message* messages, uint32_t count, uint32_t slice,
                                            Each each) {
    for (uint32_t i = threadIdx.x; i < count * a_.packet_words; i += blockDim.x) {
      const uint32_t m = i / a_.packet_words, p = i - m * a_.packet_words;
      const uint64_t rest = left(messages[m], slice, p);
      if (rest > 0 && !each(messages[m], p, rest)) {
        shared_.stopped = true;
        return;
      }
    }
  }

  const SendRecvArguments& a_;
  const DeviceComm& comm_;
  Mailbox& mine_;
  SendRecvState& shared_;
};

template <bool Packets>
__global__ void __launch_bounds__(kThreads, Packets ? kEarlyKernels : 1)
    send_recv_kernel(const __grid_constant__ SendRecvArguments arguments) {
  alignas(16) __shared__ std::byte parameters[sizeof(SendRecvArguments)];
  __shared__ SendRecvState shared;
  auto& a = *reinterpret_cast<SendRecvArguments*>(parameters);
  if (arguments.mine == nullptr) return;  // only launched to be loaded
  const uint32_t ports = arguments.ports;
  Parameters fetched;
  fetched.load(&arguments, sizeof a);
  fetched.store(&a);
  if (Packets) {
    wait_for_predecessor();
    let_successor_start();
  }
  const uint4 counters = PacketPorts::ask(arguments.mine, ports);
  shared.ports.take(counters, ports);
  if (threadIdx.x == 0) shared.stopped = false;
  __syncthreads();
  SendRecvRunner<Packets>(a, shared).run();
}

}  // namespace

const void* send_recv_kernel_function(bool packets) {
  return packets ? reinterpret_cast<const void*>(send_recv_kernel<true>)
                 : reinterpret_cast<const void*>(send_recv_kernel<false>);
}

}  // namespace weft::cuda
