// See tcp.h.
#include "src/transport/tcp.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "src/base/error.h"
#include "src/transport/doorbell.h"
#include "src/transport/socket.h"

namespace weft {
namespace {

uint64_t load(const uint64_t& at) { return __atomic_load_n(&at, __ATOMIC_SEQ_CST); }
void store(uint64_t& at, uint64_t value) { __atomic_store_n(&at, value, __ATOMIC_SEQ_CST); }

}  // namespace

TcpStream::TcpStream(Fd connection, uint64_t size, bool out, Doorbell& rank_door)
    : fd(std::move(connection)),
      outgoing(out),
      ring(Mapping::anonymous(sizeof(FifoControl) + size)),
      ring_bytes(size) {
  rank_bell.door = &rank_door;
  set_blocking(fd.get(), false);
}

SendPort send_port(const TcpStream& stream, int peer_rank) {
  SendPort port;
  port.control = &stream.control();
  port.data = stream.bytes();
  port.size = stream.ring_bytes;
  port.bell = TcpProxy::instance().bell();
  port.peer = peer_rank;
  return port;
}

RecvPort receive_port(const TcpStream& stream, int peer_rank) {
  RecvPort port;
  port.control = &stream.control();
  port.data = stream.bytes();
  port.size = stream.ring_bytes;
  port.bell = TcpProxy::instance().bell();
  port.peer = peer_rank;
  return port;
}

TcpProxy& TcpProxy::instance() {
  static TcpProxy& proxy = *std::make_unique<TcpProxy>().release();  // its thread never ends
  return proxy;
}

TcpProxy::TcpProxy()
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_ || !wake_) fail_errno(errno, "cannot make the TCP proxy's epoll");
  epoll_event event{};
  event.events = EPOLLIN;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  std::thread thread([this] { loop(); });
  pthread_setname_np(thread.native_handle(), "weft-proxy");
  thread.detach();
}

void TcpProxy::add(const std::shared_ptr<TcpStream>& stream) {
  {
    std::lock_guard lock(mutex_);
    epoll_event event{};
    event.data.ptr = stream.get();
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stream->fd.get(), &event);
    streams_.push_back(stream);
  }
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t written = write(wake_.get(), &one, sizeof one);
}

void TcpProxy::remove(const std::shared_ptr<TcpStream>& stream, double seconds) {
  const auto deadline = in_seconds(seconds);
  std::unique_lock lock(mutex_);
  while (stream->outgoing && !stream->broken && stream->moved < load(stream->control().tail) &&
         std::chrono::steady_clock::now() < deadline) {
    lock.unlock();
    ring(bell());
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    lock.lock();
  }
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stream->fd.get(), nullptr);
  std::erase(streams_, stream);
}

void TcpProxy::arm(TcpStream& stream, uint32_t events) {
  if (stream.armed == events) return;
  stream.armed = events;
  epoll_event event{};
  event.events = events;
  event.data.ptr = &stream;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, stream.fd.get(), &event);
}

// Moves what can be moved now; arms epoll for what cannot. True when bytes moved.
bool TcpProxy::progress(TcpStream& stream) {
  if (stream.broken) return false;
  FifoControl& control = stream.control();
  const uint64_t at = stream.moved % stream.ring_bytes;
  const uint64_t contiguous = stream.ring_bytes - at;
  const uint64_t ready = stream.outgoing ? load(control.tail) - stream.moved
                                         : stream.ring_bytes - (stream.moved - load(control.head));
  if (ready == 0) {
    arm(stream, 0);
    return false;
  }
  const size_t size = std::min(ready, contiguous);
  const ssize_t moved =
      stream.outgoing
          ? send(stream.fd.get(), stream.bytes() + at, size, MSG_NOSIGNAL | MSG_DONTWAIT)
          : recv(stream.fd.get(), stream.bytes() + at, size, MSG_DONTWAIT);
  if (moved > 0) {
    stream.moved += static_cast<uint64_t>(moved);
    store(stream.outgoing ? control.head : control.tail, stream.moved);
    ring(stream.rank_bell);
    return true;
  }
  if (moved < 0 && (errno == EAGAIN || errno == EINTR)) {
    arm(stream, stream.outgoing ? EPOLLOUT : EPOLLIN);
    return false;
  }
  // Closed in good order or not: what has arrived can still be read, nothing more will come.
  if (stream.lost != nullptr) stream.lost->store(true);
  ring(stream.rank_bell);
  stream.broken = true;
  arm(stream, 0);
  return false;
}

void TcpProxy::loop() {
  std::array<epoll_event, 16> events;
  for (;;) {
    bool moved = false;
    prepare_sleep(door_);
    {
      std::lock_guard lock(mutex_);
      for (const auto& stream : streams_) moved |= progress(*stream);
    }
    if (moved) continue;
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 1000);
    for (int i = 0; i < count; i++) {
      // A hung-up socket would be reported for ever. What it still holds is read when there is room
      // for it.
      const epoll_event& event = events[static_cast<size_t>(i)];
      if ((event.events & (EPOLLHUP | EPOLLERR)) == 0) continue;
      std::lock_guard lock(mutex_);
      for (const auto& stream : streams_)
        if (stream.get() == event.data.ptr)
          epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stream->fd.get(), nullptr);
    }
    uint64_t ignored = 0;
    [[maybe_unused]] ssize_t got = read(wake_.get(), &ignored, sizeof ignored);
  }
}

}  // namespace weft
