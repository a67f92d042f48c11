// See one_sided_launcher.h.
#include "src/exec/cuda/one_sided_launcher.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <deque>

#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/device_memory.h"
#include "src/exec/cuda/device_store.h"
#include "src/exec/cuda/kernels/kernels.h"
#include "src/exec/cuda/signal_arguments.h"

namespace weft::cuda {
namespace {

constexpr size_t kEarlyTails = 16;

// The default stream is never captured, and asking is an error while another one is.
bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return status != cudaStreamCaptureStatusNone;
}

// A call that a stream makes. A graph makes it many times.
struct HostCall {
  std::function<void()> submit;
  bool once = true;

  static void run(void* call) {
    auto* mine = static_cast<HostCall*>(call);
    mine->submit();
    if (mine->once) delete mine;
  }
};

}  // namespace

struct OneSidedLauncher::State {
  SignalWords words;
  // Per peer: requests to other hosts whose source has been read, and signals of ranks of other
  // hosts. The CPU counts them.
  const PooledResource kept_counts{DeviceStore::Kind::kHostMemory,
                                   static_cast<size_t>(words.nranks) * 2 * sizeof(uint64_t)};
  uint64_t* const sent = static_cast<uint64_t*>(kept_counts.get());
  uint64_t* const far_signals = sent + words.nranks;
  cudaStream_t stream = nullptr;
  SignalArguments pending;
  std::vector<std::unique_ptr<HostCall>> captured;  // graphs may be replayed at any time
  // The end of the work on each stream. The first events are made at init: making one later may
  // wait for a kernel that waits.
  struct Tail {
    cudaStream_t stream = nullptr;
    bool used = false;
    PooledResource event{DeviceStore::Kind::kEvent};
  };
  std::deque<Tail> tails{kEarlyTails};
  Tail requests;  // the end of the last requests to other hosts

  explicit State(SignalWords all) : words(std::move(all)) {
    std::fill_n(sent, 2 * words.nranks, 0);
    pending.watch.flags = words.flags;
    pending.watch.timeout_ns = words.timeout_ns;
  }
  bool only_requests = true;  // the pending waits are for requests to other hosts
  bool empty() const { return pending.adds == 0 && pending.waits == 0; }
  // Two waits for the same word may not share a kernel, because the second begins where the first
  // ends. They become one.
  void add_wait(const SignalArguments::Wait& wait) {
    for (uint32_t i = 0; i < pending.waits; i++)
      if (pending.wait[i].word == wait.word) {
        pending.wait[i].signals += wait.signals;
        return;
      }
    pending.wait[pending.waits++] = wait;
  }
  Tail& tail_of(cudaStream_t which) {
    for (Tail& tail : tails)
      if (tail.used && tail.stream == which) return tail;
    // Work that is complete needs no tail.
    const auto complete = std::find_if(tails.begin(), tails.end(), [](const Tail& tail) {
      return !tail.used || cudaEventQuery(tail.event.event()) == cudaSuccess;
    });
    cudaGetLastError();
    return complete != tails.end() ? *complete : tails.emplace_back();
  }
  void record(Tail& tail) const {
    tail.stream = stream;
    tail.used = true;
    check(cudaEventRecord(tail.event.event(), stream), "cudaEventRecord");
  }
};

OneSidedLauncher::OneSidedLauncher(SignalWords words) {
  const SetupScope scope(words.device);
  state_ = std::make_unique<State>(std::move(words));
}

OneSidedLauncher::~OneSidedLauncher() {
  const SetupScope scope(state_->words.device, std::nothrow);
  state_.reset();
}

bool OneSidedLauncher::reaches(int peer) const {
  return state_->words.peers[static_cast<size_t>(peer)] != nullptr;
}

void OneSidedLauncher::turn_to(cudaStream_t stream) {
  if (stream != state_->stream) flush();
  state_->stream = stream;
}

void OneSidedLauncher::put(cudaStream_t stream, int peer, void* to, const void* from,
                           size_t bytes) {
  State& s = *state_;
  turn_to(stream);
  if (s.pending.waits > 0) flush();
  const DeviceScope scope(s.words.device);
  if (bytes > 0)
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
  uint64_t* word = s.words.peers[static_cast<size_t>(peer)];
  for (uint32_t i = 0; i < s.pending.adds; i++)
    if (s.pending.add[i].word == word) {
      s.pending.add[i].signals++;
      return;
    }
  if (s.pending.adds == kMostSignals) flush();
  s.pending.add[s.pending.adds++] = {word, s.words.given + peer, 1};
}

void OneSidedLauncher::wait(cudaStream_t stream, int peer, uint64_t signals) {
  State& s = *state_;
  turn_to(stream);
  if (s.pending.adds > 0 || s.pending.waits == kMostSignals) flush();
  if (s.pending.waits > 0 && s.only_requests) flush();
  s.only_requests = false;
  s.add_wait({(reaches(peer) ? s.words.signals : s.far_signals) + peer, s.words.taken + peer,
              signals, peer});
}

void OneSidedLauncher::put_remote(cudaStream_t stream, int peer, std::function<void()> submit) {
  State& s = *state_;
  turn_to(stream);
  if (s.pending.adds > 0 || !s.only_requests || s.pending.waits == kMostSignals) flush();
  const DeviceScope scope(s.words.device);
  const bool capturing = is_capturing(stream);
  // Ends of requests are counted, so streams must make requests in turn.
  if (!capturing && s.requests.used && s.requests.stream != stream)
    check(cudaStreamWaitEvent(stream, s.requests.event.event(), 0), "cudaStreamWaitEvent");
  auto call = std::make_unique<HostCall>(HostCall{std::move(submit), !capturing});
  check(cudaLaunchHostFunc(stream, HostCall::run, call.get()), "cudaLaunchHostFunc");
  if (call->once) {
    static_cast<void>(call.release());
  } else {
    s.captured.push_back(std::move(call));
  }
  s.add_wait({s.sent + peer, s.words.seen + peer, 1, peer});
}

// A thread of the kernel for every signal.
void OneSidedLauncher::flush() {
  State& s = *state_;
  if (s.empty()) return;
  const DeviceScope scope(s.words.device);
  SignalArguments now = s.pending;
  const bool requests = now.waits > 0 && s.only_requests;
  s.pending.adds = s.pending.waits = 0;  // also where the launch fails
  s.only_requests = true;
  void* parameters[] = {&now};
  check(cudaLaunchKernel(signal_kernel_function(), dim3(1), dim3(kMostSignals), parameters, 0,
                         s.stream),
        "launching signals");
  if (is_capturing(s.stream)) return;
  s.record(s.tail_of(s.stream));
  if (requests) s.record(s.requests);
}

void OneSidedLauncher::synchronize() noexcept {
  const SetupScope scope(state_->words.device, std::nothrow);
  for (const State::Tail& tail : state_->tails)
    if (tail.used) cudaEventSynchronize(tail.event.event());
  cudaGetLastError();
}

std::unique_ptr<RemoteMemory> OneSidedLauncher::remote_memory() {
  const SetupScope scope(state_->words.device);
  return std::make_unique<DeviceMemory>(state_->words.device, state_->sent, state_->far_signals);
}

}  // namespace weft::cuda
