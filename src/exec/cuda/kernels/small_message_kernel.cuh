// Small messages of send/recv, and nothing else (small_message.h). A team of threads has a message;
// each thread waits for what it moves. All that can be asked for is asked for before the first
// answer is used, since most of it is a trip to the host's memory away.
#pragma once

#include "src/exec/cuda/kernels/lane_posts.cuh"
#include "src/exec/cuda/kernels/words.cuh"
#include "src/exec/cuda/small_message.h"

namespace weft::cuda {

class SmallMessageRunner {
 public:
  // `thread`: of the first `threads`, the message's team.
  __device__ SmallMessageRunner(const SmallMessageArguments& a, const SmallMessage& message,
                                uint32_t thread, uint32_t threads)
      : a_(a), m_(message), thread_(thread), threads_(threads) {}

  __device__ void run() {
    if (m_.sends)
      send();
    else
      receive();
  }
  // When all of the team have run.
  __device__ void count() const {
    if (thread_ == 0) *m_.counter = call_;
  }

 private:
  // Data of a peer that has left may be on the way.
  struct OnTheWay {
    __device__ static uint32_t on_the_way() {
      return static_cast<uint32_t>(kOnTheWayNs >> kWaitUnit);
    }
    __device__ static bool gives_up() { return false; }
  };
  __device__ uint32_t half() const { return (call_ & 1) != 0 ? a_.half : 0; }
  __device__ uint64_t left(uint32_t w) const { return m_.bytes - w * 8; }

  // When the consumer has entered the message before. Then it has consumed the one before that, so
  // nobody reads what is in this half any more.
  __device__ void send() {
    const uint32_t words = m_.words();
    const uint32_t before = load_volatile(m_.counter);
    Packet granted = load_packet(m_.grant);
    uint64_t word = thread_ < words ? load_word(m_.memory + thread_ * 8, left(thread_)) : 0;
    call_ = before + 1;
    const int peer = m_.peer;
    const auto is_granted = [&] {
      if (static_cast<int32_t>(granted.flag0 - before) >= 0) return true;
      granted = load_packet(m_.grant);
      return false;
    };
    if (!wait_until(a_.watch, peer, is_granted, OnTheWay())) return;
    Packet* const to = m_.packets + half();
    for (uint32_t w = thread_; w < words; w += threads_) {
      if (w != thread_) word = load_word(m_.memory + w * 8, left(w));
      store_packet(to + w, static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32), call_,
                   call_);
    }
    if (thread_ == 0 && m_.post != nullptr) post(words);
  }
  // Other threads' packets may come after it. They wait for nothing any more.
  __device__ void post(uint32_t words) const {
    // The next call may lay out the outbox anew when the network is done with all posts so far.
    atomicAdd(&a_.counters->posted, 1);
    atomicAdd(&a_.counters->settled, 1);
    LanePost post;
    post.kind = LanePost::kPackets;
    post.call = call_;
    post.bytes = words * 8;
    post.from = m_.from + half() * sizeof(Packet);
    post.to = m_.to + half() * sizeof(Packet);
    put_post(a_.watch, *m_.post, post, m_.peer);
  }

  __device__ void receive() {
    call_ = load_volatile(m_.counter) + 1;
    if (thread_ == 0) grant();
    const uint32_t words = m_.words();
    const Packet* const from = m_.packets + half();
    const int peer = m_.peer;
    for (uint32_t w = thread_; w < words; w += threads_) {
      Packet read;
      const auto here = [&] {
        read = load_packet(from + w);
        return read.flag0 == call_ && read.flag1 == call_;
      };
      if (!wait_until(a_.watch, peer, here, OnTheWay())) return;
      store_word(m_.memory + w * 8, left(w), static_cast<uint64_t>(read.data1) << 32 | read.data0);
    }
  }
  // Its place says that packets go nowhere else.
  __device__ void grant() const {
    if (m_.post == nullptr)
      return store_packet(m_.grant, static_cast<uint32_t>(kPrivate),
                          static_cast<uint32_t>(kPrivate >> 32), call_, call_);
    LanePost post;
    post.kind = LanePost::kGrant;
    post.word = static_cast<uint32_t>(reinterpret_cast<uint64_t>(m_.grant) - kRemote);
    post.call = call_;
    post.to = kPrivate;
    put_post(a_.watch, *m_.post, post, m_.peer);
  }

  const SmallMessageArguments& a_;
  const SmallMessage& m_;
  const uint32_t thread_, threads_;
  uint32_t call_ = 0;
};

// All threads of a block.
__device__ inline void run_small_messages(const SmallMessageArguments& a) {
  const uint32_t teams = blockDim.x / a.team, team = threadIdx.x / a.team;
  const uint32_t number = blockIdx.x * teams + team;
  const bool has_one = team < teams && number < a.count;
  SmallMessage message;
  if (has_one) {  // as Parameters do
    constexpr uint32_t kVectors = sizeof(SmallMessage) / sizeof(uint4);
    uint4 vectors[kVectors];
    for (uint32_t v = 0; v < kVectors; v++)
      vectors[v] = load_parameter(reinterpret_cast<const uint4*>(a.messages() + number) + v);
    memcpy(&message, vectors, sizeof message);
  }
  wait_for_predecessor();
  SmallMessageRunner runner(a, message, threadIdx.x - team * a.team, a.team);
  if (has_one) runner.run();
  __syncthreads();  // before the next message is counted: all have read that number
  let_successor_start();
  if (has_one) runner.count();
}

#ifdef __CUDACC__
template <size_t kMessages>
__global__ void __launch_bounds__(kThreads, 1) small_message_kernel(
    const __grid_constant__ ParameterBytes<small_message_parameters(kMessages)> arguments) {
  const auto& a = reinterpret_cast<const SmallMessageArguments&>(arguments);
  if (a.counters == nullptr) return;  // only launched to be loaded
  run_small_messages(a);
}
#endif

}  // namespace weft::cuda
