// Send and receive: all of a rank's messages of a group in one kernel. Small ones travel as
// packets; of large ones the receivers take the data out of the senders' memory.
#include "src/exec/cuda/combine.cuh"
#include "src/exec/cuda/kernels.h"
#include "src/exec/cuda/packed.cuh"

namespace weft::cuda {
namespace {

struct PairState {
  const std::byte* sources[kMaxRanks];
  bool stopped;
  PackedPorts ports;
  PackedEnd to[2][kMaxRanks], from[2][kMaxRanks];
};

class PairRunner {
 public:
  __device__ PairRunner(const PairArguments& a, PairState& shared)
      : a_(a), comm_(a.comm), mine_(*a.mine), shared_(shared) {}

  __device__ void run() {
    announce();
    run_packed();
    hear();
    __syncthreads();
    if (shared_.stopped) return;
    take();
    __syncthreads();
    acknowledge();
    shared_.ports.store(&mine_, a_.ports);
  }

 private:
  using Message = PairArguments::Message;

  // Thread t deals with the t-th message of each direction.
  __device__ static bool takes_part(const Message* messages, uint32_t count, bool packed) {
    return threadIdx.x < count && messages[threadIdx.x].packed == packed &&
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
    const auto join = [](const Packet& p) {
      return static_cast<uint64_t>(p.data1) << 32 | p.data0;
    };
    if (join(bytes) != m.bytes) {
      shared_.stopped = true;
      report(comm_, 1, m.peer, static_cast<uint32_t>(m.bytes), static_cast<uint32_t>(join(bytes)));
      return;
    }
    shared_.sources[threadIdx.x] = locate(m.peer, join(place));
  }

  // Between processes a message lies in a registration, or (number 0) in the sender's stage.
  __device__ const std::byte* locate(int peer, uint64_t place) const {
    if (comm_.one_process) return reinterpret_cast<const std::byte*>(place);
    const uint64_t offset = place & ((uint64_t{1} << kOffsetBits) - 1),
                   number = place >> kOffsetBits;
    if (number == 0) return reinterpret_cast<const std::byte*>(comm_.mailboxes[peer]) + offset;
    const uint64_t* mapped = comm_.registrations + peer * kMaxRegistrations + (number - 1);
    return reinterpret_cast<const std::byte*>(*static_cast<const volatile uint64_t*>(mapped) +
                                              offset);
  }

  // The threads share the messages out.
  __device__ void take() {
    uint32_t groups = 1;
    while (groups < a_.receive_count && groups < blockDim.x / 32) groups *= 2;
    const uint32_t threads = blockDim.x / groups;
    for (uint32_t r = threadIdx.x / threads; r < a_.receive_count; r += groups) {
      const Message& m = a_.receives[r];
      if (m.packed || blockIdx.x >= m.ctas) continue;
      copy(shared_.sources[r], &m.pointer, 1, m.bytes,
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

  // Bytes of a packed message that this block has, of which it moves a slot at a time.
  __device__ uint64_t part(const Message& m) const {
    const uint64_t all = (m.bytes + m.ctas - 1) / m.ctas;
    return (all + 15) / 16 * 16;
  }
  __device__ uint64_t slice_bytes(const Message& m, uint64_t slice) const {
    if (!m.packed || blockIdx.x >= m.ctas) return 0;
    const uint64_t begin = blockIdx.x * part(m) + slice * kSlotBytes;
    uint64_t end = (blockIdx.x + 1) * part(m);
    if (end > m.bytes) end = m.bytes;
    if (end > begin + kSlotBytes) end = begin + kSlotBytes;
    return end > begin ? end - begin : 0;
  }

  __device__ void run_packed() {
    uint32_t turn = 0;
    for (uint64_t slice = 0;; slice++) {
      bool sends_more = false, receives_more = false;
      if (threadIdx.x < a_.send_count && slice_bytes(a_.sends[threadIdx.x], slice) > 0) {
        sends_more = true;
        shared_.to[turn][threadIdx.x] =
            shared_.ports.next_send(comm_, a_.sends[threadIdx.x].peer, kPairChannel);
      }
      if (threadIdx.x < a_.receive_count && slice_bytes(a_.receives[threadIdx.x], slice) > 0) {
        receives_more = true;
        shared_.from[turn][threadIdx.x] =
            shared_.ports.next_receive(comm_, a_.receives[threadIdx.x].peer, kPairChannel);
      }
      if (__syncthreads_or(static_cast<int>(sends_more || receives_more)) == 0) return;
      // Everything is sent before anything is awaited.
      move(a_.sends, a_.send_count, slice, [&](uint32_t m, uint32_t p, uint64_t left) {
        const PackedEnd memory = {at(a_.sends[m], slice), 0, 0, false, false};
        uint64_t words[1];
        load_words<1>(comm_, &memory, 1, p, left, 0, words);
        return store_words(comm_, shared_.ports, &shared_.to[turn][m], 1, p, left,
                           signature(a_.sends[m]), words[0]);
      });
      move(a_.receives, a_.receive_count, slice, [&](uint32_t m, uint32_t p, uint64_t left) {
        uint64_t words[1];
        if (!load_words<1>(comm_, &shared_.from[turn][m], 1, p, left, signature(a_.receives[m]),
                           words))
          return false;
        store_word(at(a_.receives[m], slice) + p * uint64_t{8}, left, words[0]);
        return true;
      });
      __syncthreads();
      if (shared_.stopped) return;
      if (receives_more) shared_.ports.give_back(comm_, shared_.from[turn][threadIdx.x]);
      turn ^= 1;
    }
  }

  __device__ std::byte* at(const Message& m, uint64_t slice) const {
    return m.pointer + blockIdx.x * part(m) + slice * kSlotBytes;
  }
  __device__ static uint32_t signature(const Message& m) { return static_cast<uint32_t>(m.bytes); }

  // Words of all messages side by side.
  template <typename Each>
  __device__ void move(const Message* messages, uint32_t count, uint64_t slice, Each each) {
    for (uint32_t i = threadIdx.x; i < count * a_.packed_words; i += blockDim.x) {
      const uint32_t m = i / a_.packed_words, p = i % a_.packed_words;
      const uint64_t bytes = slice_bytes(messages[m], slice);
      if (p * uint64_t{8} >= bytes) continue;
      if (!each(m, p, bytes - p * uint64_t{8})) {
        shared_.stopped = true;
        return;
      }
    }
  }

  const PairArguments& a_;
  const DeviceComm& comm_;
  Mailbox& mine_;
  PairState& shared_;
};

__global__ void __launch_bounds__(kThreads, 1)
    pair_kernel(const __grid_constant__ PairArguments arguments) {
  __shared__ alignas(16) std::byte parameters[sizeof(PairArguments)];
  __shared__ PairState shared;
  auto& a = *reinterpret_cast<PairArguments*>(parameters);
  const uint32_t ports = arguments.ports;
  const uint4 counters = PackedPorts::ask(arguments.mine, ports);
  Parameters fetched;
  fetched.load(&arguments, sizeof a);
  fetched.store(&a);
  shared.ports.take(counters, ports);
  if (threadIdx.x == 0) shared.stopped = false;
  __syncthreads();
  PairRunner(a, shared).run();
}

}  // namespace

const void* pair_kernel_function() { return reinterpret_cast<const void*>(pair_kernel); }

}  // namespace weft::cuda
