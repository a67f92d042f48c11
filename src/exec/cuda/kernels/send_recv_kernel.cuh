// Send and receive: a rank's messages of a group in one kernel. Small messages travel as packets.
// Receivers read large messages from the senders' memory. All are announced first. Those of one
// peer are taken in turns: the peer may send them in kernels of their own.
#pragma once

#include "src/exec/cuda/kernels/combine.cuh"
#include "src/exec/cuda/kernels/packets.cuh"

namespace weft::cuda {

struct SendRecvState {
  // Slots of data on the message's port before it and in all, for messages in packets.
  struct Slots {
    uint32_t before, all;
  };
  const std::byte* sources[kMaxRanks];
  // If there are several messages of a peer:
  Slots sent[kMaxRanks], received[kMaxRanks];
  uint8_t turns[kMaxRanks];  // when a large message is received
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
    Among sent = {0, 1}, received = {0, 1};
    if (!Packets && a_.several) {
      sent = among(a_.sends, a_.send_count);
      received = among(a_.receives, a_.receive_count);
      if (threadIdx.x < a_.receive_count)
        shared_.turns[threadIdx.x] = static_cast<uint8_t>(received.before);
    }
    uint32_t sent_flag = 0, received_flag = 0;
    if (!Packets && sends())
      sent_flag = mine_.sent[blockIdx.x][a_.sends[threadIdx.x].peer] + 1 + sent.before;
    if (!Packets && receives())
      received_flag =
          mine_.received[blockIdx.x][a_.receives[threadIdx.x].peer] + 1 + received.before;
    if (a_.several) number_slots();  // all have read the counters: here they meet
    if (!Packets && sends()) announce(sent_flag);
    run_packets();
    if (Packets) return;
    for (uint32_t turn = 0; turn < a_.turns; turn++) {
      const bool mine = receives() && received.before == turn;
      if (mine) hear(received_flag);
      __syncthreads();
      if (shared_.stopped) return;
      take(turn);
      __syncthreads();
      if (mine) acknowledge(received_flag);
    }
    // The last message to a peer speaks for all.
    if (sends() && sent.before + 1 == sent.all) wait_for_acknowledgement(sent_flag);
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

  // Messages of this block between the same two ranks as this thread's: earlier ones, and all.
  struct Among {
    uint32_t before, all;
  };
  __device__ static Among among(const Message* messages, uint32_t count) {
    Among found = {0, 0};
    for (uint32_t i = 0; i < count && threadIdx.x < count; i++) {
      const Message& m = messages[i];
      if (m.packets || m.peer != messages[threadIdx.x].peer || blockIdx.x >= m.ctas) continue;
      if (i < threadIdx.x) found.before++;
      found.all++;
    }
    return found;
  }
  // A kernel ends after all its messages were taken, so the next ones find their places free.
  __device__ Announcement& place_of(int owner, int sender, uint32_t number) const {
    const uint32_t slots = message_slots(comm_.nranks);
    return comm_.mailboxes[owner]
        ->messages[blockIdx.x][static_cast<uint32_t>(sender) * slots + number % slots];
  }

  __device__ void announce(uint32_t flag) {
    const Message& m = a_.sends[threadIdx.x];
    Announcement& to = place_of(m.peer, comm_.rank, flag);
    store_packet(&to.input, m.place, flag);
    store_packet(&to.output, m.bytes, flag);
  }

  __device__ void hear(uint32_t flag) {
    const Message& m = a_.receives[threadIdx.x];
    const Announcement& from = place_of(comm_.rank, m.peer, flag);
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
    if (comm_.one_process || peer == comm_.rank) return reinterpret_cast<const std::byte*>(place);
    const uint64_t offset = place & ((uint64_t{1} << kOffsetBits) - 1),
                   number = place >> kOffsetBits;
    if (number == 0) return reinterpret_cast<const std::byte*>(comm_.mailboxes[peer]) + offset;
    const uint64_t* mapped = comm_.registrations + peer * kPlaces + (number - 1);
    return reinterpret_cast<const std::byte*>(*static_cast<const volatile uint64_t*>(mapped) +
                                              offset);
  }

  // The threads divide the messages of a turn among themselves.
  __device__ void take(uint32_t turn) {
    uint32_t groups = 1;
    while (groups < a_.receive_count && groups < blockDim.x / 32) groups *= 2;
    const uint32_t threads = blockDim.x / groups;
    for (uint32_t r = threadIdx.x / threads; r < a_.receive_count; r += groups) {
      const Message& m = a_.receives[r];
      if (m.packets || blockIdx.x >= m.ctas || (a_.several && shared_.turns[r] != turn)) continue;
      const uintptr_t addresses =
          reinterpret_cast<uintptr_t>(shared_.sources[r]) | reinterpret_cast<uintptr_t>(m.pointer);
      copy<16>(shared_.sources[r], &m.pointer, 1, m.bytes, addresses % 16 == 0,
               Team{threadIdx.x % threads, threads, blockIdx.x, m.ctas});
    }
  }

  __device__ void acknowledge(uint32_t flag) {
    const int peer = a_.receives[threadIdx.x].peer;
    mine_.received[blockIdx.x][peer] = flag;
    store_release(&comm_.mailboxes[peer]->acknowledgements[blockIdx.x][comm_.rank], flag,
                  comm_.one_device);
  }
  __device__ void wait_for_acknowledgement(uint32_t flag) {
    const int peer = a_.sends[threadIdx.x].peer;
    mine_.sent[blockIdx.x][peer] = flag;
    wait_until(comm_, peer, [&] {
      return static_cast<int32_t>(
                 load_acquire(&mine_.acknowledgements[blockIdx.x][peer], comm_.one_device) -
                 flag) >= 0;
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

  // Slots of data that this block has of a message in packets.
  __device__ static uint32_t slots(const Message& m) {
    return static_cast<uint32_t>((left(m, 0, 0) + kSlotBytes - 1) / kSlotBytes);
  }
  // Messages of a peer follow each other on its port. Needs a __syncthreads() afterwards.
  __device__ static void number_slots(const Message* messages, uint32_t count,
                                      SendRecvState::Slots* numbers) {
    if (threadIdx.x >= count) return;
    SendRecvState::Slots found = {0, 0};
    for (uint32_t i = 0; i < count; i++) {
      if (messages[i].peer != messages[threadIdx.x].peer) continue;
      const uint32_t more = slots(messages[i]);
      if (i < threadIdx.x) found.before += more;
      found.all += more;
    }
    numbers[threadIdx.x] = found;
  }
  __device__ void number_slots() {
    number_slots(a_.sends, a_.send_count, shared_.sent);
    number_slots(a_.receives, a_.receive_count, shared_.received);
    __syncthreads();
  }

  // In a step a port takes the next `packet_width` slots of data. The two sides of a port may
  // differ in the width: neither takes more than the slots that a port has.
  __device__ void run_packets() {
    for (uint32_t step = 0; step < a_.packet_steps; step++) {
      // All sends come before the first wait.
      for_words(a_.sends, a_.send_count, shared_.sent, step,
                [&](const Message& m, std::byte* at, uint32_t number, uint32_t p, uint64_t rest) {
                  const uint64_t word = load_word(at, rest);
                  const uint32_t flag = shared_.ports.sent(port(m), number);
                  if (!shared_.ports.wait_for_room(comm_, port(m), flag)) return false;
                  store_packet(packet(m, flag, p), static_cast<uint32_t>(word),
                               static_cast<uint32_t>(word >> 32), flag, flag ^ signature(m));
                  return true;
                });
      for_words(a_.receives, a_.receive_count, shared_.received, step,
                [&](const Message& m, std::byte* at, uint32_t number, uint32_t p, uint64_t rest) {
                  const uint32_t flag = shared_.ports.received(port(m), number);
                  const PacketEnd from = {reinterpret_cast<std::byte*>(packet(m, flag, p)), flag,
                                          static_cast<uint16_t>(port(m)), true};
                  uint64_t words[1];
                  if (!wait_for_words<1>(
                          comm_, [&](int) { return from; }, signature(m), words))
                    return false;
                  store_word(at, rest, words[0]);
                  return true;
                });
      __syncthreads();
      if (shared_.stopped) return;
      if (threadIdx.x < a_.receive_count) {
        const Message& m = a_.receives[threadIdx.x];
        if (const uint32_t number = last_number(m, shared_.received, step); number > 0) {
          const uint32_t flag = shared_.ports.received(port(m), number);
          PacketPorts::give_back(comm_, port(m), flag);
          PacketPorts::keep_received(&mine_, a_.ports, port(m), flag);
        }
      }
      if (threadIdx.x < a_.send_count) {
        const Message& m = a_.sends[threadIdx.x];
        if (const uint32_t number = last_number(m, shared_.sent, step); number > 0)
          PacketPorts::keep_sent(&mine_, a_.ports, port(m), shared_.ports.sent(port(m), number));
      }
    }
  }

  // The number on its port, from 1, of the last slot of a step, if this thread's message has it.
  // Otherwise 0.
  __device__ uint32_t last_number(const Message& m, const SendRecvState::Slots* numbers,
                                  uint32_t step) const {
    if (!a_.several) return left(m, step, 0) > 0 ? step + 1 : 0;
    const uint32_t width = a_.packet_width, begin = step * width;
    const auto [before, all] = numbers[threadIdx.x];
    const uint32_t end = all < begin + width ? all : begin + width;
    return end > begin && before < end && end <= before + slots(m) ? end : 0;
  }

  // Handles the words of all messages in packets in parallel. Slots have numbers on their port,
  // from 1.
  template <typename Each>
  __device__ __forceinline__ void for_words(const Message* messages, uint32_t count,
                                            const SendRecvState::Slots* numbers, uint32_t step,
                                            Each each) {
    const uint32_t of_message = a_.packet_words * a_.packet_width;
    for (uint32_t i = threadIdx.x; i < count * of_message; i += blockDim.x) {
      const uint32_t m = i / of_message;
      uint32_t p = i - m * of_message, slice = step;
      if (a_.several) {
        const uint32_t k = p / a_.packet_words;
        p -= k * a_.packet_words;
        slice = step * a_.packet_width + k - numbers[m].before;  // large if it comes earlier
      }
      if (slice > kMostSlices) continue;
      const uint64_t rest = left(messages[m], slice, p);
      if (rest == 0) continue;
      const uint32_t number = (a_.several ? numbers[m].before : 0) + slice + 1;
      if (!each(messages[m], at(messages[m], slice, p), number, p, rest)) {
        shared_.stopped = true;
        return;
      }
    }
  }
  static constexpr uint32_t kMostSlices = 1 << 16;

  const SendRecvArguments& a_;
  const DeviceComm& comm_;
  Mailbox& mine_;
  SendRecvState& shared_;
};

}  // namespace weft::cuda
