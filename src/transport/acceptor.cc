// Handshake: client hello -> server challenge and proof -> client proof -> server's confirmation.
#include "src/transport/acceptor.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "src/base/error.h"
#include "src/base/log.h"

namespace weft {
namespace {

constexpr uint32_t kMagic = 0x57454654;  // "WEFT"
constexpr uint32_t kProtocol = 1;

using Nonce = std::array<uint8_t, 16>;

struct Hello {
  uint32_t magic = kMagic, protocol = kProtocol;
  uint64_t key = 0;
  Purpose purpose;
  Nonce nonce{};
};
struct Challenge {
  Nonce nonce{};
  Proof proof{};
};

// Everything that both sides have said so far, hashed with the secret. `side` prevents a proof from
// being sent back as the other side's.
Proof prove(const Secret& secret, std::string_view side, const Hello& hello, const Nonce& server) {
  struct {
    Hello hello;
    Nonce server;
  } transcript{hello, server};
  return weft::prove(secret, side, &transcript, sizeof transcript);
}

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <typename T>
std::span<std::byte> writable_bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace

uint64_t public_key(const Secret& secret) {
  constexpr std::string_view kLabel = "weft communicator";
  return siphash(secret, kLabel.data(), kLabel.size());
}

bool authenticate(int fd, const Secret& secret, const Purpose& purpose, Deadline deadline) {
  Hello hello;
  hello.key = public_key(secret);
  hello.purpose = purpose;
  fill_random(hello.nonce.data(), hello.nonce.size());
  try {
    send_all(fd, bytes_of(hello), deadline);
    Challenge challenge;
    receive_all(fd, writable_bytes_of(challenge), deadline);
    if (!same(challenge.proof, prove(secret, "server", hello, challenge.nonce))) return false;
    send_all(fd, bytes_of(prove(secret, "client", hello, challenge.nonce)), deadline);
    uint32_t word = 0;
    receive_all(fd, writable_bytes_of(word), deadline);
    return word == kMagic;
  } catch (const Error&) {
    return false;  // closed or timed out: the caller may try another address, or try again
  }
}

SocketPeer socket_peer(int fd) {
  int domain = 0;
  socklen_t size = sizeof domain;
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX) return {};
  ucred peer{};
  size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {};
  return {peer.pid, peer.uid};
}

std::string request_status(int fd, Deadline deadline) {
  Hello hello;
  hello.purpose.kind = Purpose::kStatus;
  send_all(fd, bytes_of(hello), deadline);
  uint64_t size = 0;
  Fd answer;
  try {
    answer = receive_descriptor(fd, size, deadline);
  } catch (const Error& error) {
    fail(error.code(), "the process did not send its status");
  }
  constexpr uint64_t kMost = 64 << 20;
  struct stat file {};
  if (!answer || size > kMost || fstat(answer.get(), &file) != 0 ||
      static_cast<uint64_t>(file.st_size) != size)
    fail(ncclSystemError, "the process sent no status");
  std::string text(size, ' ');
  if (pread(answer.get(), text.data(), size, 0) != static_cast<ssize_t>(size))
    fail(ncclSystemError, "the process sent half a status");
  return text;
}

struct Acceptor::Pending {
  Fd fd;
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  Hello hello;
  Nonce nonce{};
  Proof proof{};
  size_t got = 0;
  bool challenged = false;
  bool accepted = false;
};

Acceptor& Acceptor::instance() {
  static Acceptor& acceptor =
      *std::make_unique<Acceptor>().release();  // lives as long as the control thread
  return acceptor;
}

Acceptor::Acceptor(double handshake_seconds) : handshake_seconds_(handshake_seconds) {
  fill_random(&token_, sizeof token_);
  unix_name_ = fmt::format("weft-{:016x}", token_);
  tcp_ = listen_tcp(nullptr, port_);
  unix_ = listen_unix(unix_name_);
  watch_listener(tcp_.get(), true);
  watch_listener(unix_.get(), false);
}

void Acceptor::listen_at(const Address& address, Deadline patience) {
  std::lock_guard lock(listen_mutex_);  // a second caller waits until the first has a listener
  if (std::find(listening_.begin(), listening_.end(), address) != listening_.end()) return;
  uint16_t port = 0;
  Fd fd = listen_tcp(&address, port, patience);
  watch_listener(fd.get(), true);
  listening_.push_back(address);
  extra_.push_back(std::move(fd));
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

void Acceptor::watch_listener(int listener, bool tcp) {
  set_blocking(listener, false);
  EventLoop::instance().watch(listener, EPOLLIN, [this, listener, tcp](uint32_t) {
    drop_stale();
    for (;;) {
      Fd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd) return;
      if (tcp) set_no_delay(fd.get());
      auto pending = std::make_shared<Pending>();
      pending->fd = std::move(fd);
      const int number = pending->fd.get();
      pending_[number] = pending;
      EventLoop::instance().watch(number, EPOLLIN,
                                  [this, pending](uint32_t) { progress(pending); });
    }
  });
}

void Acceptor::drop_stale() {
  const auto now = std::chrono::steady_clock::now();
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (std::chrono::duration<double>(now - it->second->since).count() > handshake_seconds_) {
      EventLoop::instance().unwatch(it->first);
      it = pending_.erase(it);
    } else {
      ++it;
    }
  }
}

void Acceptor::progress(const std::shared_ptr<Pending>& pending) {
  const int fd = pending->fd.get();
  if (advance(*pending)) return;
  EventLoop::instance().unwatch(fd);
  pending_.erase(fd);
  if (!pending->accepted) {
    pending->fd.reset();
    return;
  }
  Accept accept;
  {
    std::lock_guard lock(mutex_);
    const auto it = services_.find({pending->hello.key, pending->hello.purpose.to_rank});
    if (it != services_.end()) accept = it->second.accept;
  }
  const uint32_t word = kMagic;
  if (!accept || send(fd, &word, sizeof word, MSG_NOSIGNAL) != sizeof word) {
    pending->fd.reset();
    return;
  }
  accept(std::move(pending->fd), pending->hello.purpose);
}

// Reads the available bytes. True while more is needed. `accepted` holds the result.
bool Acceptor::advance(Pending& p) {
  const std::span<std::byte> goal =
      p.challenged ? writable_bytes_of(p.proof) : writable_bytes_of(p.hello);
  const ssize_t got = recv(p.fd.get(), goal.data() + p.got, goal.size() - p.got, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  p.got += static_cast<size_t>(got);
  if (p.got < goal.size()) return true;
  p.got = 0;
  if (!p.challenged && p.hello.magic == kMagic && p.hello.protocol == kProtocol &&
      p.hello.purpose.kind == Purpose::kStatus) {
    answer_status(p.fd.get());
    return false;
  }
  Secret secret;
  {
    std::lock_guard lock(mutex_);
    const auto it = services_.find({p.hello.key, p.hello.purpose.to_rank});
    if (p.hello.magic != kMagic || p.hello.protocol != kProtocol || it == services_.end())
      return false;
    secret = it->second.secret;
  }
  if (p.challenged) {
    p.accepted = same(p.proof, prove(secret, "client", p.hello, p.nonce));
    if (!p.accepted)
      WEFT_WARN("dropped a connection whose peer does not know the communicator's secret");
    return false;
  }
  Challenge challenge;
  fill_random(challenge.nonce.data(), challenge.nonce.size());
  p.nonce = challenge.nonce;
  challenge.proof = prove(secret, "server", p.hello, challenge.nonce);
  if (send(p.fd.get(), &challenge, sizeof challenge, MSG_NOSIGNAL) != sizeof challenge)
    return false;
  p.challenged = true;
  return true;
}

}  // namespace weft
