// One round of small messages through FIFOs in host memory, see OneRoundShape. It sends the same
// messages as the interpreter of ring_kernel.cuh, with fewer instructions. The peer may use either.
// One thread block; thread i handles rank i's FIFOs.
#pragma once

#include "src/exec/cuda/kernels/combine.cuh"
#include "src/exec/cuda/kernels/ring_wait.cuh"

namespace weft::cuda {

template <typename Type, typename Op>
class RingExchange {
 public:
  struct Shared {
    std::byte* to[kMaxRanks];  // destinations and sources of the messages' data
    const std::byte* from[kMaxRanks];
  };

  __device__ RingExchange(const RingExchangeArguments& a, Shared& shared)
      : a_(a), shared_(shared), me_(static_cast<uint32_t>(a.comm.rank)) {
    const uint32_t i = threadIdx.x;
    sends_ = i < kMaxRanks && (a.send_to >> i & 1) != 0;
    receives_ = i < kMaxRanks && (a.receive_from >> i & 1) != 0;
    // Both loads are in flight before either result is needed.
    if (sends_) out_ = *a.ports[i].send;
    if (receives_) in_ = *a.ports[i].receive;
    // A rank that sends nothing may have no input.
    if (a.send_to != 0 && a.send_stride == 0 && vectors() > i)
      first_ = load_vector(a.input + i * 16);
  }

  // Finds the place of this thread's message. False: all threads must stop.
  __device__ bool place() {
    if (!sends_) return true;
    const uint64_t left = out_.size - out_.at, skip = left < footprint() ? left : 0;
    const auto fits = [&] {
      return out_.size - (out_.tail - out_.head_seen) >= skip + footprint();
    };
    if (!fits() && !wait([&] {
          out_.head_seen = load_acquire_system(&out_.control->head);
          return fits();
        }))
      return false;
    if (skip > 0) {
      MessageHeader skipped;
      skipped.kind = MessageHeader::kSkip;
      skipped.bytes = skip;
      store_header(out_.data + out_.at, skipped);
      out_.tail += skip;
      out_.at = 0;
    }
    store_header(out_.data + out_.at, a_.header);
    shared_.to[threadIdx.x] = out_.data + out_.at + kFifoAlign;
    out_.tail += footprint();
    out_.at = further(out_.at, footprint(), out_.size);
    return true;
  }

  __device__ void send() {
    for (uint64_t v = threadIdx.x; v < vectors(); v += blockDim.x)
      for (uint32_t left = a_.send_to; left != 0; left &= left - 1) {
        const int p = __ffs(static_cast<int>(left)) - 1;
        const bool known = a_.send_stride == 0 && v == threadIdx.x;
        store_vector(shared_.to[p] + v * 16,
                     known ? first_ : load_vector(a_.input + p * a_.send_stride + v * 16));
      }
    for (uint64_t e = rest(); e < elements(); e += blockDim.x)
      for (uint32_t left = a_.send_to; left != 0; left &= left - 1) {
        const int p = __ffs(static_cast<int>(left)) - 1;
        element(shared_.to[p], e) = element(a_.input + p * a_.send_stride, e);
      }
  }
  // Called after all threads have sent.
  __device__ void post() {
    if (!sends_) return;
    fence_system();
    store_relaxed_system(&out_.control->tail, out_.tail);
    // Stores the port state for the next kernel while the messages are in flight.
    SendPort& port = *a_.ports[threadIdx.x].send;
    port.tail = out_.tail;
    port.at = out_.at;
    port.head_seen = out_.head_seen;
  }
  __device__ void copy_own() {
    if (a_.own_to == nullptr) return;
    for (uint64_t v = threadIdx.x; v < vectors(); v += blockDim.x)
      store_vector(a_.own_to + v * 16, load_vector(a_.own_from + v * 16));
    for (uint64_t e = rest(); e < elements(); e += blockDim.x)
      element(a_.own_to, e) = element(a_.own_from, e);
  }

  // Waits for this thread's message. False: all threads must stop.
  __device__ bool take() {
    if (!receives_) return true;
    MessageHeader header;
    do {
      if (!wait_for(kFifoAlign)) return false;
      uint4 words[kVectors];
      for (int i = 0; i < kVectors; i++) words[i] = load_vector(in_.data + in_.at + i * 16);
      memcpy(&header, words, sizeof header);
      if (header.kind == MessageHeader::kSkip) {
        in_.head += header.bytes;
        in_.at = further(in_.at, header.bytes, in_.size);
      }
    } while (header.kind == MessageHeader::kSkip);
    if (!means_this_call(header)) {
      report(a_.comm, KernelError::kOtherCall, static_cast<int>(threadIdx.x));
      return false;
    }
    shared_.from[threadIdx.x] = in_.data + in_.at + kFifoAlign;
    return wait_for(footprint());
  }

  __device__ void receive() {
    constexpr int kCount = 16 / sizeof(Element);
    for (uint64_t v = threadIdx.x; v < vectors(); v += blockDim.x)
      take_pack<Pack<Type, kCount>, kCount>(v * 16);
    for (uint64_t e = rest(); e < elements(); e += blockDim.x)
      take_pack<Pack<Type, 1>, 1>(e * sizeof(Element));
  }
  // Called after all threads have received. Returns the room to the peers.
  __device__ void give_back() {
    if (!receives_) return;
    in_.head += footprint();
    store_relaxed_system(&in_.control->head, in_.head);
    RecvPort& port = *a_.ports[threadIdx.x].receive;
    port.head = in_.head;
    port.at = further(in_.at, footprint(), in_.size);
    port.tail_seen = in_.tail_seen;
  }

 private:
  using Element = typename Type::Element;
  static constexpr int kVectors = sizeof(MessageHeader) / sizeof(uint4);
  static constexpr uint32_t kBatch = 4;  // sources loaded before the first is needed

  __device__ uint64_t footprint() const { return kFifoAlign + fifo_round(a_.header.bytes); }
  __device__ uint64_t elements() const { return a_.header.bytes / sizeof(Element); }
  __device__ uint64_t vectors() const { return a_.aligned ? a_.header.bytes / 16 : 0; }
  // This thread's first element after the vectors.
  __device__ uint64_t rest() const { return vectors() * (16 / sizeof(Element)) + threadIdx.x; }
  __device__ static volatile Element& element(std::byte* block, uint64_t e) {
    return reinterpret_cast<volatile Element*>(block)[e];
  }
  __device__ static const volatile Element& element(const std::byte* block, uint64_t e) {
    return reinterpret_cast<const volatile Element*>(block)[e];
  }
  __device__ static void store_header(std::byte* at, const MessageHeader& header) {
    uint4 words[kVectors];
    memcpy(words, &header, sizeof header);
    for (int i = 0; i < kVectors; i++) store_vector(at + i * 16, words[i]);
  }
  // The peer's header equals this rank's own.
  __device__ bool means_this_call(const MessageHeader& header) const {
    uint4 words[2][kVectors];
    memcpy(words[0], &header, sizeof header);
    memcpy(words[1], &a_.header, sizeof header);
    bool same = true;
    for (int i = 0; i < kVectors; i++)
      same &= words[0][i].x == words[1][i].x && words[0][i].y == words[1][i].y &&
              words[0][i].z == words[1][i].z && words[0][i].w == words[1][i].w;
    return same;
  }
  // Waits until the next `bytes` of the ring have arrived.
  __device__ bool wait_for(uint64_t bytes) {
    const auto there = [&] {
      return static_cast<int64_t>(in_.tail_seen - in_.head) >= static_cast<int64_t>(bytes);
    };
    return there() || wait([&] {
             in_.tail_seen = load_acquire_system(&in_.control->tail);
             return there();
           });
  }
  template <typename Ready>
  __device__ bool wait(Ready ready) {
    Patience patience;
    while (!ready())
      if (!patience.lasts(a_.comm, static_cast<int>(threadIdx.x))) return false;
    return true;
  }

  // Stores messages at their places, or sums them in rank order so that all ranks get the same
  // bits.
  template <typename P, int kCount>
  __device__ __forceinline__ void take_pack(uint64_t at) {
    typename Type::Accumulator sum[kCount];
    bool started = false;
    const auto comes = [&](uint32_t p) { return (a_.receive_from >> p & 1) != 0; };
    const auto n = static_cast<uint32_t>(a_.comm.nranks);
    for (uint32_t first = 0; first < n; first += kBatch) {
      P read[kBatch];
#pragma unroll
      for (uint32_t b = 0; b < kBatch; b++) {
        const uint32_t p = first + b;
        if (p < n && comes(p)) {
          read[b] = load_pack<P, true>(shared_.from[p] + at);
        } else if (p == me_ && a_.sums_own) {
          read[b] = load_pack<P, true>(a_.own_from + at);
        }
      }
#pragma unroll
      for (uint32_t b = 0; b < kBatch; b++) {
        const uint32_t p = first + b;
        if (p >= n || (!comes(p) && !(p == me_ && a_.sums_own))) continue;
        if constexpr (std::is_same_v<Type, Bytes>) {
          store_pack(a_.output + p * a_.receive_stride + at, read[b]);
        } else {
          with_operator<Op>(a_.op, [&](auto op) {
#pragma unroll
            for (int i = 0; i < kCount; i++)
              sum[i] =
                  started ? op.apply(sum[i], Type::load(read[b].e[i])) : Type::load(read[b].e[i]);
          });
          started = true;
        }
      }
    }
    if (!started) return;
    P result;
#pragma unroll
    for (int i = 0; i < kCount; i++)
      result.e[i] = Type::store(a_.divide_by > 0 ? divide(sum[i], a_.divide_by) : sum[i]);
    store_pack(a_.output + at, result);
  }

  const RingExchangeArguments& a_;
  Shared& shared_;
  const uint32_t me_;
  bool sends_, receives_;
  SendPort out_;
  RecvPort in_;
  uint4 first_;  // the first vector that this thread sends
};

// Called by all threads of the block.
template <typename Type, typename Op>
__device__ __forceinline__ void exchange_through_rings(
    const RingExchangeArguments& a, typename RingExchange<Type, Op>::Shared& shared) {
  RingExchange<Type, Op> exchange(a, shared);
  if (__syncthreads_or(!exchange.place())) return;
  exchange.send();
  __syncthreads();
  exchange.post();
  exchange.copy_own();
  if (__syncthreads_or(!exchange.take())) return;
  exchange.receive();
  __syncthreads();
  exchange.give_back();
}

template <typename Type, typename Op>
__global__ void __launch_bounds__(kThreads, 1)
    ring_exchange_kernel(const __grid_constant__ RingExchangeArguments a) {
  __shared__ typename RingExchange<Type, Op>::Shared shared;
  if (a.header.kind == 0) return;  // only launched to be loaded
  wait_for_predecessor();
  exchange_through_rings<Type, Op>(a, shared);
  let_successor_start();
}

}  // namespace weft::cuda
