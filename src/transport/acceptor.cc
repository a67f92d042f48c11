// Handshake: client hello -> server challenge and proof -> client proof -> server's confirmation.
#include "src/transport/acceptor.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "src/base/error.h"
#include "src/base/log.h"

namespace weft {
namespace {

constexpr uint32_t kMagic = 0x57454654;  // "WEFT"
constexpr uint32_t kProtocol = 2;

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

// Everything that both sides have said before the proofs.
struct Transcript {
  Hello hello;
  Nonce server;
};

// `side` prevents a proof from being sent back as the other side's.
Proof prove(const Secret& secret, std::string_view side, const Hello& hello, const Nonce& server) {
  const Transcript transcript{hello, server};
  return weft::prove(secret, side, &transcript, sizeof transcript);
}

Session client_session(const Secret& secret, const Hello& hello, const Nonce& server) {
  const Transcript transcript{hello, server};
  return {session_key(secret, "to server", &transcript, sizeof transcript),
          session_key(secret, "to client", &transcript, sizeof transcript)};
}

Session server_session(const Secret& secret, const Hello& hello, const Nonce& server) {
  const Session client = client_session(secret, hello, server);
  return {client.in, client.out};
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

uint64_t public_key(const Secret& secret) { return public_number(secret, "communicator"); }

std::optional<Session> authenticate(int fd, const Secret& secret, const Purpose& purpose,
                                    Deadline deadline) {
  Hello hello;
  hello.key = public_key(secret);
  hello.purpose = purpose;
  fill_random(hello.nonce.data(), hello.nonce.size());
  try {
    send_all(fd, bytes_of(hello), deadline);
    Challenge challenge;
    receive_all(fd, writable_bytes_of(challenge), deadline);
    if (!same(challenge.proof, prove(secret, "server", hello, challenge.nonce)))
      return std::nullopt;
    send_all(fd, bytes_of(prove(secret, "client", hello, challenge.nonce)), deadline);
    uint32_t word = 0;
    receive_all(fd, writable_bytes_of(word), deadline);
    if (word != kMagic) return std::nullopt;
    return client_session(secret, hello, challenge.nonce);
  } catch (const Error&) {
    return std::nullopt;  // closed or timed out: the caller may try another address, or try again
  }
}

struct Acceptor::Pending {
  Fd fd;
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  Hello hello;
  Nonce nonce{};
  Proof proof{};
  Session session;
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
  accept(std::move(pending->fd), pending->hello.purpose, pending->session);
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
    if (p.accepted)
      p.session = server_session(secret, p.hello, p.nonce);
    else
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
