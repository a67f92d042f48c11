// One round of messages between all ranks with the low-latency protocol, see OneRoundShape. Two
// instruction counts matter: from the launch to the first packet, and from the last packet to the
// end.
#pragma once

#include "src/exec/cuda/kernels/combine.cuh"
#include "src/exec/cuda/kernels/packets.cuh"

namespace weft::cuda {

template <typename Type, typename Op>
class OneRound {
 public:
  // `before`: the block's counters at the start of the kernel, in shared memory.
  __device__ OneRound(const OneRoundArguments& a, const uint4* before)
      : a_(a),
        before_(before),
        n_(static_cast<uint32_t>(a.comm.nranks)),
        me_(static_cast<uint32_t>(a.comm.rank)),
        row_(threadIdx.x >= a.columns ? 1 : 0),
        column_(threadIdx.x - row_ * a.columns),
        rows_(blockDim.x > a.columns ? 2 : 1) {}

  __device__ void scale_by(uint64_t bits) { scalar_bits_ = bits; }

  // Moves to this block's part of a slice.
  __device__ void go_to(uint32_t slice) {
    slice_ = slice;
    begin_ = slice * a_.slice_bytes + uint64_t{blockIdx.x} * a_.part_bytes;
    const uint64_t end = (slice + 1) * a_.slice_bytes;
    const uint64_t stop = end < a_.bytes ? end : a_.bytes;
    const uint64_t left = stop > begin_ ? stop - begin_ : 0;
    length_ = left < a_.part_bytes ? static_cast<uint32_t>(left) : a_.part_bytes;
    // An empty message is a packet without data. It is counted too.
    words_ = length_ == 0 ? 1 : (length_ + 7) / 8;
  }

  // Loads this thread's first words while the counters are still in flight.
  __device__ void fetch() {
    if (column_ < words_) load_row(column_, 1 + row_, fetched_);
    if (a_.sums_own && threadIdx.x < words_) own_ = load(a_.own_from, threadIdx.x);
  }

  __device__ bool send() {
    for (uint32_t w = column_; w < words_; w += a_.columns) {
      for (uint32_t k = 1 + row_; k < n_; k += kRow * rows_) {
        uint64_t words[kRow];
        if (slice_ == 0 && w == column_ && k == 1 + row_) {
          for (int j = 0; j < kRow; j++) words[j] = fetched_[j];
        } else {
          load_row(w, k, words);
        }
        if (!store_row(w, k, words)) return false;
      }
      if (a_.own_to != nullptr && row_ == rows_ - 1 && w * 8 < length_)
        store_word(a_.own_to + begin_ + w * 8, length_ - w * 8,
                   load_word(a_.own_from + begin_ + w * 8, length_ - w * 8));
    }
    return true;
  }

  __device__ bool receive() {
    if constexpr (std::is_same_v<Type, Bytes>) {
      for (uint32_t w = column_; w < words_; w += a_.columns)
        for (uint32_t k = 1 + row_; k < n_; k += kRow * rows_)
          if (!move_row(w, k)) return false;
    } else {
      if (a_.receive_from == 0) return true;
      return n_ <= 2 ? sum_words<2>() : sum_words<8>();
    }
    return true;
  }

  // Called after all threads have received, by one thread per rank. Returns the room to the peers.
  __device__ void give_back(uint32_t rank) const {
    PacketPorts::give_back(a_.comm, rank, before_[rank].y + slice_ + 1);
  }

 private:
  using Element = typename Type::Element;
  static constexpr int kCount = 8 / sizeof(Element);
  static constexpr int kRow = 4;  // peers that a thread handles at once

  __device__ uint32_t peer(uint32_t k) const { return me_ + k < n_ ? me_ + k : me_ + k - n_; }
  __device__ uint64_t scaled(uint64_t word) const {
    if constexpr (!std::is_same_v<Type, Bytes> && kSums<Op>) {
      if (!a_.reduction.premultiply) return word;
      Element e[kCount];
      memcpy(e, &word, 8);
      for (int i = 0; i < kCount; i++) e[i] = scale<Type>(e[i], scalar_bits_);
      memcpy(&word, e, 8);
    }
    return word;
  }
  __device__ uint64_t load(const std::byte* block, uint32_t w) const {
    const uint32_t at = w * 8;
    return at < length_ ? load_word(block + begin_ + at, length_ - at) : 0;
  }

  // Words for up to kRow peers. All loads come before their first use.
  __device__ __forceinline__ void load_row(uint32_t w, uint32_t first, uint64_t (&words)[kRow]) {
    if (a_.send_stride == 0) {
      words[0] = load(a_.input, w);
#pragma unroll
      for (int j = 1; j < kRow; j++) words[j] = words[0];
      return;
    }
#pragma unroll
    for (int j = 0; j < kRow; j++) {
      const uint32_t k = first + j * rows_, p = peer(k);
      if (k < n_ && (a_.send_to >> p & 1) != 0) words[j] = load(a_.input + p * a_.send_stride, w);
    }
  }

  __device__ __forceinline__ bool store_row(uint32_t w, uint32_t first,
                                            const uint64_t (&words)[kRow]) {
#pragma unroll
    for (int j = 0; j < kRow; j++) {
      const uint32_t k = first + j * rows_, p = peer(k);
      if (k >= n_ || (a_.send_to >> p & 1) == 0) continue;
      const uint32_t flag = before_[p].x + slice_ + 1;
      if (flag - before_[p].z > kPacketSlots && !wait_for_room(p, flag)) return false;
      const uint64_t word = scaled(words[j]);
      store_packet(slot(a_.comm.mailboxes[p], me_, flag) + w, static_cast<uint32_t>(word),
                   static_cast<uint32_t>(word >> 32), flag, flag ^ a_.signature);
    }
    return true;
  }

  __device__ bool wait_for_room(uint32_t p, uint32_t flag) const {
    const uint32_t* consumed = &(port_counters(a_.mine) + blockIdx.x * a_.ports)[p].consumed;
    const int whom = static_cast<int>(p);
    return wait_until(a_.comm, whom,
                      [&] { return flag - load_volatile(consumed) <= kPacketSlots; });
  }

  // The slot in `owner`'s memory for messages from `sender`.
  __device__ Packet* slot(Mailbox* owner, uint32_t sender, uint32_t flag) const {
    const uint32_t number = (blockIdx.x * a_.ports + sender) * kPacketSlots + flag % kPacketSlots;
    return reinterpret_cast<Packet*>(reinterpret_cast<std::byte*>(owner) + a_.slots_at) +
           number * kSlotPackets;
  }

  __device__ __forceinline__ bool move_row(uint32_t w, uint32_t first) {
    PacketEnd ends[kRow];
    uint64_t words[kRow];
#pragma unroll
    for (int j = 0; j < kRow; j++) {
      const uint32_t k = first + j * rows_, p = peer(k);
      expect(ends[j], w, p, k < n_ && (a_.receive_from >> p & 1) != 0);
    }
    if (!wait_for_words<kRow>(
            a_.comm, [&](int j) { return ends[j]; }, a_.signature, words))
      return false;
    if (w * 8 >= length_) return true;
#pragma unroll
    for (int j = 0; j < kRow; j++)
      if (ends[j].message)
        store_word(a_.output + ends[j].port * a_.receive_stride + begin_ + w * 8, length_ - w * 8,
                   words[j]);
    return true;
  }

  __device__ __forceinline__ void expect(PacketEnd& end, uint32_t w, uint32_t p, bool comes) {
    end.message = comes;
    end.port = static_cast<uint16_t>(p);
    if (!comes) return;
    end.flag = before_[p].y + slice_ + 1;
    end.at = reinterpret_cast<std::byte*>(slot(a_.mine, p, end.flag) + w);
  }

  template <uint32_t Batch>
  __device__ __forceinline__ bool sum_words() {
    for (uint32_t w = threadIdx.x; w < words_; w += blockDim.x)
      if (!sum_word<Batch>(w)) return false;
    return true;
  }

  // Sums in rank order, so that all ranks get the same bits. Loads `Batch` sources at once.
  template <uint32_t Batch>
  __device__ __forceinline__ bool sum_word(uint32_t w) {
    typename Type::Accumulator sum[kCount];
    bool started = false;
    uint64_t own = 0;
    if (a_.sums_own) own = slice_ == 0 && w == threadIdx.x ? own_ : load(a_.own_from, w);
    for (uint32_t first = 0; first < n_; first += Batch) {
      uint64_t words[Batch];
      uint32_t flags[Batch];
      const auto comes = [&](int b) {
        const uint32_t p = first + static_cast<uint32_t>(b);
        return p < n_ && (a_.receive_from >> p & 1) != 0;
      };
#pragma unroll
      for (uint32_t b = 0; b < Batch; b++)
        flags[b] = comes(b) ? before_[first + b].y + slice_ + 1 : 0;
      const auto source = [&](int b) {
        // There are too few registers to keep the addresses of many sources.
        const uint32_t p = first + static_cast<uint32_t>(b),
                       flag = Batch > 2 ? worked_out_here(flags[b]) : flags[b];
        return PacketEnd{reinterpret_cast<std::byte*>(slot(a_.mine, p, flag) + w), flag,
                         static_cast<uint16_t>(p), comes(b)};
      };
      if (!wait_for_words<Batch>(a_.comm, source, a_.signature, words)) return false;
#pragma unroll
      for (uint32_t b = 0; b < Batch; b++) {
        if (!comes(b) && !(first + b == me_ && a_.sums_own)) continue;
        const uint64_t word = comes(b) ? words[b] : scaled(own);
        Element e[kCount];
        memcpy(e, &word, 8);
#pragma unroll
        for (int i = 0; i < kCount; i++)
          sum[i] =
              started ? apply<Op>(sum[i], Type::load(e[i]), a_.reduction.op) : Type::load(e[i]);
        started = true;
      }
    }
    if (w * 8 >= length_) return true;
    const uint32_t divide_by = kSums<Op> ? a_.reduction.divide_by : 0;
    Element e[kCount];
#pragma unroll
    for (int i = 0; i < kCount; i++)
      e[i] = Type::store(divide_by > 0 ? divide(sum[i], divide_by) : sum[i]);
    uint64_t word;
    memcpy(&word, e, 8);
    store_word(a_.output + begin_ + w * 8, length_ - w * 8, word);
    return true;
  }

  const OneRoundArguments& a_;
  const uint4* before_;
  uint64_t scalar_bits_ = 0;
  const uint32_t n_, me_, row_, column_, rows_;
  uint32_t slice_ = 0, length_ = 0, words_ = 0;
  uint64_t begin_ = 0;
  uint64_t fetched_[kRow], own_;
};

template <typename Type, typename Op>
__global__ void __launch_bounds__(kThreads, 1)
    one_round_kernel(const __grid_constant__ OneRoundArguments a) {
  __shared__ uint4 before[kMaxRanks];
  __shared__ uint64_t scalar_bits;
  if (a.mine == nullptr) return;  // only launched to be loaded
  if (a.early) {
    wait_for_predecessor();
    let_successor_start();
  }
  const uint32_t rank = threadIdx.x;
  const bool mine = rank < static_cast<uint32_t>(a.comm.nranks);
  PortCounters* counters = port_counters(a.mine) + blockIdx.x * a.ports;  // channel 0
  uint4 seen{};
  if (mine) seen = load_counters(counters + rank);
  OneRound<Type, Op> round(a, before);
  round.go_to(0);
  round.fetch();
  if (mine) before[rank] = seen;
  uint64_t bits = a.reduction.scalar_bits;
  if (a.reduction.scalar_at != nullptr) {
    if (threadIdx.x == 0)
      scalar_bits = load_scalar(a.reduction.scalar_at, sizeof(typename Type::Element));
    __syncthreads();
    bits = scalar_bits;
  }
  __syncthreads();
  round.scale_by(bits);
  const bool sends = mine && (a.send_to >> rank & 1) != 0,
             receives = mine && (a.receive_from >> rank & 1) != 0;
  bool there = true;
  for (uint32_t slice = 0; slice < a.slices; slice++) {
    if (slice > 0) round.go_to(slice);
    there = round.send();
    // Stored for the next kernel now, while the sent packets are in flight.
    if (slice == 0 && sends) counters[rank].sent = seen.x + a.slices;
    if (slice == 0 && receives) counters[rank].received = seen.y + a.slices;
    // In place, the result overwrites the data to send.
    if (__syncthreads_or(!there)) return;
    there = round.receive();
    if (__syncthreads_or(!there)) return;
    if (receives) round.give_back(rank);
  }
}

}  // namespace weft::cuda
