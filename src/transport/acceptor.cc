// See acceptor.h.
#include "src/transport/acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/base/error.h"
#include "src/base/fork.h"
#include "src/base/log.h"
#include "src/transport/status_request.h"

namespace weft {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMostPending = 64;
// Accepted in one go, so that a flood of strangers does not keep the control thread from its work.
constexpr int kAtOnce = 64;
// When the room is full: how long a connection may stay without naming a communicator, and how long
// with a name but without a proof. Peers say their name as soon as they are connected.
constexpr double kStrangerSeconds = 0.02, kNamedSeconds = 1;
// Peers speak first. Until a connection says something the kernel keeps it, for so long.
constexpr int kSilentSeconds = 10;
constexpr milliseconds kFullPause{20}, kNoDescriptorPause{100};

double seconds_since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

bool is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

Acceptor& Acceptor::instance() {
  static PerProcess<Acceptor> acceptor;
  return acceptor.get();
}

size_t Acceptor::most_pending() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kMostPending;
  return std::clamp<size_t>(limit.rlim_cur / 16, 4, kMostPending);
}

Acceptor::Acceptor(double handshake_seconds)
    : handshake_seconds_(handshake_seconds),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!timer_) fail_errno(errno, "cannot make the acceptor's timer");
  fill_random(&token_, sizeof token_);
  unix_name_ = fmt::format("weft-{:016x}", token_);
  Fd local = listen_unix(unix_name_);
  listen_first();
  EventLoop::instance().watch(timer_.get(), EPOLLIN, [this](uint32_t) { tick(); });
  add_listener(std::move(local), false);
}

// Loopback, and the addresses of the interfaces in use, all at one port.
void Acceptor::listen_first() {
  const Config config = Config::from_environment();
  constexpr int kTries = 20;
  for (int attempt = 1;; attempt++) {
    std::vector<Fd> sockets;
    std::vector<Address> bound;
    uint16_t port = 0;
    bool taken = false;
    std::vector<Address> wanted = local_addresses(config, 0);
    wanted.insert(wanted.begin(), Address::loopback(0));
    for (Address& address : wanted) {
      address.port = port;
      if (std::find(bound.begin(), bound.end(), address) != bound.end()) continue;
      int error = 0;
      Fd fd = try_listen_tcp(&address, port, error);
      taken = taken || error == EADDRINUSE;
      if (!fd) continue;
      address.port = port;
      bound.push_back(address);
      sockets.push_back(std::move(fd));
    }
    if (taken && attempt < kTries) continue;  // another program has this port at some address
    if (sockets.empty())
      fail(ncclSystemError, "cannot listen at loopback or any other address of this machine");
    port_ = port;
    addresses_ = std::move(bound);
    for (Fd& fd : sockets) add_listener(std::move(fd), true);
    return;
  }
}

std::vector<Address> Acceptor::offer(const Config& config, size_t most) {
  std::vector<Address> offered;
  std::lock_guard lock(listen_mutex_);
  std::string why;
  for (const Address& address : local_addresses(config, port_)) {
    if (offered.size() == most) break;
    if (std::find(addresses_.begin(), addresses_.end(), address) == addresses_.end()) {
      int error = 0;
      uint16_t port = 0;
      Fd fd = try_listen_tcp(&address, port, error);
      if (!fd) {
        why = fmt::format("{}: {}", describe(address), std::strerror(error));
        WEFT_INFO(kNet, "not offered to peers: {}", why);
        continue;
      }
      add_listener(std::move(fd), true);
      addresses_.push_back(address);
    }
    offered.push_back(address);
  }
  if (offered.empty()) fail(ncclSystemError, "cannot listen at any address ({})", why);
  return offered;
}

void Acceptor::listen_at(const Address& address, Deadline patience) {
  std::lock_guard lock(listen_mutex_);  // a second caller waits until the first has a listener
  if (std::find(addresses_.begin(), addresses_.end(), address) != addresses_.end()) return;
  uint16_t port = 0;
  add_listener(listen_tcp(&address, port, patience), true);
  addresses_.push_back(address);
}

void Acceptor::serve(const Secret& secret, int to_rank, Accept accept) {
  std::lock_guard lock(mutex_);
  services_[{public_key(secret), to_rank}] = {secret, std::move(accept)};
}

void Acceptor::stop(const Secret& secret, int to_rank) {
  // On the control thread, so that no accept() of this service is running when this returns.
  EventLoop::instance().run([&] {
    std::lock_guard lock(mutex_);
    services_.erase({public_key(secret), to_rank});
  });
}

void Acceptor::serve_status(std::function<std::string()> answer) {
  std::lock_guard lock(mutex_);
  status_ = std::move(answer);
}

// The answer is a file in memory, so that this thread need not wait for a slow reader.
void Acceptor::answer_status(int fd) {
  const SocketPeer peer = socket_peer(fd);
  if (peer.uid != 0 && peer.uid != static_cast<int64_t>(geteuid())) return;
  std::function<std::string()> answer;
  {
    std::lock_guard lock(mutex_);
    answer = status_;
  }
  if (!answer) return;
  try {
    const std::string text = answer();
    const Fd file = make_memfd("weft status", text.size());
    if (pwrite(file.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()))
      send_descriptor(fd, text.size(), file.get());
  } catch (const std::exception& error) {
    WEFT_WARN("cannot answer a request for the status: {}", error.what());
  }
}

std::optional<Secret> Acceptor::find_secret(uint64_t key, const Purpose& purpose) {
  std::lock_guard lock(mutex_);
  const auto it = services_.find({key, purpose.to_rank});
  if (it == services_.end()) return std::nullopt;
  return it->second.secret;
}

void Acceptor::add_listener(Fd fd, bool tcp) {
  set_blocking(fd.get(), false);
  if (tcp)
    setsockopt(fd.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, &kSilentSeconds, sizeof kSilentSeconds);
  EventLoop::instance().run([&] {
    listeners_.push_back(std::make_unique<Listening>(Listening{std::move(fd), tcp}));
    const Listening& added = *listeners_.back();
    EventLoop::instance().watch(added.fd.get(), paused_ ? 0u : static_cast<uint32_t>(EPOLLIN),
                                [this, &added](uint32_t) { accept_some(added); });
  });
}

void Acceptor::accept_some(const Listening& listening) {
  for (int n = 0; n < kAtOnce && !paused_; n++) {
    if (pending_.size() >= most_pending() && !make_room()) return pause(kFullPause);
    Fd fd(accept4(listening.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd && is_shortage(errno)) {
      drop_older(kStrangerSeconds, kNamedSeconds, false);
      return pause(kNoDescriptorPause);
    }
    if (!fd && errno != EINTR && errno != ECONNABORTED) break;
    if (!fd) continue;
    if (listening.tcp) {
      set_no_delay(fd.get());
    } else if (!is_own_user(fd.get())) {
      WEFT_WARN("dropped a connection of another user to this process's unix socket");
      continue;
    }
    auto pending = std::make_shared<Pending>();
    pending->fd = std::move(fd);
    const int number = pending->fd.get();
    pending_[number] = pending;
    EventLoop::instance().watch(number, EPOLLIN, [this, pending](uint32_t) { progress(pending); });
    progress(pending);  // often its first words are there already
  }
  set_timer();
}

void Acceptor::progress(const std::shared_ptr<Pending>& pending) {
  using State = ServerHandshake::State;
  const State state = pending->handshake.advance(
      pending->fd.get(),
      [this](uint64_t key, const Purpose& purpose) { return find_secret(key, purpose); });
  if (state == State::kStranger || state == State::kNamed) return;
  forget(pending->fd.get());
  if (state == State::kProved) finish(*pending);
  if (state == State::kAsksStatus) answer_status(pending->fd.get());
  pending->fd.reset();
  if (paused_ && pending_.size() < most_pending() && resume_at_ <= Clock::now() + kFullPause)
    resume();
}

void Acceptor::finish(Pending& pending) {
  Accept accept;
  {
    std::lock_guard lock(mutex_);
    const auto it = services_.find({pending.handshake.key(), pending.handshake.purpose().to_rank});
    if (it != services_.end()) accept = it->second.accept;
  }
  if (!accept || !pending.handshake.confirm(pending.fd.get())) return;
  accept(std::move(pending.fd), pending.handshake.purpose(), pending.handshake.session());
}

void Acceptor::forget(int fd) {
  EventLoop::instance().unwatch(fd);
  pending_.erase(fd);
}

void Acceptor::drop_older(double stranger_seconds, double named_seconds, bool only_one) {
  using State = ServerHandshake::State;
  std::vector<std::shared_ptr<Pending>> old;
  for (const auto& [fd, pending] : pending_) {
    const bool stranger = pending->handshake.state() == State::kStranger;
    if (seconds_since(pending->since) > (stranger ? stranger_seconds : named_seconds))
      old.push_back(pending);
  }
  std::sort(old.begin(), old.end(),
            [](const auto& a, const auto& b) { return a->since < b->since; });
  if (only_one && old.size() > 1) old.resize(1);
  for (const auto& pending : old) {
    forget(pending->fd.get());
    pending->fd.reset();
  }
}

// The oldest that has had its chance leaves. False: all are new.
bool Acceptor::make_room() {
  const size_t before = pending_.size();
  drop_older(kStrangerSeconds, kNamedSeconds, true);
  if (pending_.size() == before) return false;
  if (!told_) WEFT_WARN("strangers hold connections to port {}; the oldest are dropped", port_);
  told_ = true;
  return true;
}

void Acceptor::pause(milliseconds duration) {
  paused_ = true;
  resume_at_ = Clock::now() + duration;
  for (const auto& listening : listeners_) EventLoop::instance().change(listening->fd.get(), 0);
  set_timer();
}

void Acceptor::resume() {
  paused_ = false;
  for (const auto& listening : listeners_)
    EventLoop::instance().change(listening->fd.get(), EPOLLIN);
}

void Acceptor::tick() {
  uint64_t ignored = 0;
  [[maybe_unused]] const ssize_t got = read(timer_.get(), &ignored, sizeof ignored);
  drop_older(handshake_seconds_, handshake_seconds_, false);
  if (paused_ && Clock::now() >= resume_at_) resume();
  set_timer();
}

// The next moment at which there is something to do without an event.
void Acceptor::set_timer() {
  auto next = Clock::time_point::max();
  const auto patience = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(handshake_seconds_));
  for (const auto& [fd, pending] : pending_) next = std::min(next, pending->since + patience);
  if (paused_) next = std::min(next, resume_at_);
  itimerspec spec{};  // zero: no timer
  if (next != Clock::time_point::max()) {
    const auto left = std::max<int64_t>(
        1'000'000,
        std::chrono::duration_cast<std::chrono::nanoseconds>(next - Clock::now()).count() +
            1'000'000);
    spec.it_value.tv_sec = left / 1'000'000'000;
    spec.it_value.tv_nsec = left % 1'000'000'000;
  }
  timerfd_settime(timer_.get(), 0, &spec, nullptr);
}

}  // namespace weft
