// See one_sided.h.
#include "src/comm/one_sided.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/communicator.h"
#include "src/comm/remote_writes.h"
#include "src/exec/cuda/one_sided_launcher.h"
#include "src/transport/doorbell.h"

namespace weft {
namespace {

using WaitClock = std::chrono::steady_clock;

constexpr int kWaitLooks = 2000, kWaitYields = 50;
constexpr uint64_t kWaitSleepNs = 20'000'000;
// What a rank sent before it left may be on its way.
constexpr double kSignalOnTheWayS = 2;
constexpr double kFlushS = 60;

// A rank's memory in host mode. Signals are counted where the ranks of the host count them, too.
class HostMemory : public RemoteMemory {
 public:
  HostMemory(int nranks, uint64_t* signals, Doorbell* door)
      : sent_(static_cast<size_t>(nranks)), signals_(signals), door_(door) {}
  void pin(std::byte*, size_t, std::shared_ptr<const void>) override {}
  void read(std::byte* to, const std::byte* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void write(std::byte* to, const std::byte* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void signal(int source) override {
    __atomic_fetch_add(signals_ + source, 1, __ATOMIC_SEQ_CST);
    tell();
  }
  uint64_t* sent() override { return sent_.data(); }
  void tell() override { ring({door_}); }

 private:
  std::vector<uint64_t> sent_;
  uint64_t* const signals_;
  Doorbell* const door_;
};

}  // namespace

OneSided::OneSided(Communicator& comm, const WindowParts& parts)
    : comm_(comm),
      parts_([&] {
        WindowParts all = parts;
        all.remote_memory = [this] { return make_memory(); };
        return all;
      }()),
      taken_(static_cast<size_t>(parts.options.nranks)),
      windows_(parts_) {
  if (parts_.gpu != nullptr)
    launcher_ = std::make_unique<cuda::OneSidedLauncher>(parts_.gpu->signal_words());
}

OneSided::~OneSided() = default;

std::unique_ptr<RemoteMemory> OneSided::make_memory() {
  if (launcher_ != nullptr) return launcher_->remote_memory();
  return std::make_unique<HostMemory>(parts_.options.nranks, signals_at(parts_.options.rank),
                                      parts_.context.door);
}

// In host mode a rank's signals are counted on its board, one word per source.
uint64_t* OneSided::signals_at(int rank) const {
  return reinterpret_cast<uint64_t*>(parts_.mesh.board(rank));
}

std::byte* OneSided::target_of(const OneSidedCall& call, std::string& why) {
  return call.bytes == 0 ? nullptr : windows_.at(call.window, call.peer, why) + call.offset;
}

void OneSided::check(const OneSidedCall& call) {
  if (call.kind == OneSidedCall::Kind::kWait) return;
  if (call.bytes > 0) {
    const size_t size = windows_.size_at(call.window, call.peer);
    if (call.bytes > size || call.offset > size - call.bytes)
      fail(ncclInvalidArgument, "{} bytes at {} do not fit into the window of {} bytes of rank {}",
           call.bytes, call.offset, size, call.peer);
  }
  if (parts_.mesh.link_kind(call.peer) == LinkKind::kNetwork) {
    if (windows_.remote() == nullptr)
      fail(ncclInvalidUsage,
           "rank {} is on another host, and connections to it are made when the ranks register "
           "their first window (ncclCommWindowRegister)",
           call.peer);
    return;
  }
  std::string why;
  if (call.bytes > 0 && windows_.at(call.window, call.peer, why) == nullptr)
    fail(ncclInvalidUsage, "rank {} cannot write into the window of rank {}: {}",
         parts_.options.rank, call.peer, why);
  if (launcher_ != nullptr && !launcher_->reaches(call.peer))
    fail(ncclInvalidUsage, "the GPUs of ranks {} and {} do not reach each other's memory",
         parts_.options.rank, call.peer);
}

void OneSided::run(std::span<const OneSidedCall* const> calls) {
  comm_.poll_gpu();
  comm_.check();
  for (const OneSidedCall* call : calls) {
    if (launcher_ != nullptr) {
      launch(*call);
    } else if (call->kind == OneSidedCall::Kind::kPut) {
      put(*call);
    } else {
      wait(*call);
    }
  }
  if (launcher_ != nullptr) launcher_->flush();
}

void OneSided::put(const OneSidedCall& call) {
  const auto* source = static_cast<const std::byte*>(call.source);
  RemoteWrites* remote = windows_.remote();
  if (remote != nullptr && remote->connects(call.peer)) {
    const uint64_t window = call.bytes > 0 ? windows_.find(call.window).number : 0;
    const uint64_t number = remote->submit({call.peer, window, call.offset, source, call.bytes});
    return wait_until(call.peer, "ncclPutSignal",
                      [&] { return remote->sent(call.peer) >= number; });
  }
  std::string why;
  if (call.bytes > 0) std::memmove(target_of(call, why), source, call.bytes);
  __atomic_fetch_add(signals_at(call.peer) + parts_.options.rank, 1, __ATOMIC_SEQ_CST);
  if (call.peer != parts_.options.rank) ring(parts_.mesh.sender(call.peer, 0).bell);
}

void OneSided::wait(const OneSidedCall& call) {
  const uint64_t* signals = signals_at(parts_.options.rank);
  for (const OneSidedCall::Wait& wait : call.waits) {
    uint64_t& taken = taken_[static_cast<size_t>(wait.peer)];
    const uint64_t goal = taken + wait.signals;
    wait_until(wait.peer, fmt::format("ncclWaitSignal, signal {}", goal),
               [&] { return __atomic_load_n(signals + wait.peer, __ATOMIC_SEQ_CST) >= goal; });
    taken = goal;
  }
}

// Ends like the wait of any operation: by an abort, a peer that left, or the timeout.
void OneSided::wait_until(int peer, const std::string& what, const std::function<bool()>& ready) {
  const host::RankContext& context = parts_.context;
  const auto begun = WaitClock::now();
  bool warned = false;
  std::optional<WaitClock::time_point> left;  // when this was first seen
  const auto give_up = [&](const std::string& why) {
    const FaultState::Answer answer =
        comm_.give_up(ncclRemoteError,
                      fmt::format("{}: {}: waits for rank {}{}", context.label, what, peer, why));
    throw Error(answer.code, answer.text);
  };
  for (int looks = 0; !ready(); looks++) {
    comm_.check();
    if (looks < kWaitLooks) continue;
    if (looks < kWaitLooks + kWaitYields) {
      std::this_thread::yield();
      continue;
    }
    const double seconds = std::chrono::duration<double>(WaitClock::now() - begun).count();
    if (context.gone[peer].load()) {
      const bool remote = parts_.mesh.link_kind(peer) == LinkKind::kNetwork;
      if (left && (!remote || std::chrono::duration<double>(WaitClock::now() - *left).count() >
                                  kSignalOnTheWayS))
        give_up(", but that peer has left the communicator, or its connection broke");
      if (!left) left = WaitClock::now();
    }
    if (context.timeout_s > 0 && seconds > context.timeout_s)
      give_up(fmt::format(": gave up after {:.1f} s (WEFT_TIMEOUT)", seconds));
    if (context.stall_warning_s > 0 && seconds > context.stall_warning_s && !warned) {
      WEFT_TELL("{}: {}: waits for rank {} for {:.0f} s already", context.label, what, peer,
                seconds);
      warned = true;
    }
    const uint32_t ticket = prepare_sleep(*context.door);
    if (!ready() && !comm_.stopped()) sleep(*context.door, ticket, kWaitSleepNs);
  }
}

void OneSided::launch(const OneSidedCall& call) {
  if (call.kind == OneSidedCall::Kind::kWait) {
    for (const OneSidedCall::Wait& wait : call.waits)
      launcher_->wait(call.stream, wait.peer, wait.signals);
    return;
  }
  RemoteWrites* remote = windows_.remote();
  if (remote != nullptr && remote->connects(call.peer)) {
    const uint64_t window = call.bytes > 0 ? windows_.find(call.window).number : 0;
    const RemoteWrites::Request request{call.peer, window, call.offset,
                                        static_cast<const std::byte*>(call.source), call.bytes};
    return launcher_->put_remote(call.stream, call.peer,
                                 [remote, request] { remote->submit(request); });
  }
  std::string why;
  launcher_->put(call.stream, call.peer, target_of(call, why), call.source, call.bytes);
}

void OneSided::drain(double seconds) {
  if (windows_.remote() != nullptr) windows_.remote()->drain(seconds);
}

void OneSided::synchronize() noexcept {
  if (launcher_ != nullptr) launcher_->synchronize();
  if (windows_.remote() != nullptr) windows_.remote()->flush(kFlushS);
}

}  // namespace weft
