// See memory_link.h.
#include "src/transport/memory_link.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/transport/descriptors.h"
#include "src/transport/event_loop.h"
#include "src/transport/segments.h"

namespace weft {

MemoryLink::MemoryLink(const std::string& unix_name, const Secret& secret, int my_rank,
                       int peer_rank, Deadline deadline, const Cancelled& cancelled)
    : socket_(connect_unix(unix_name)) {
  if (!socket_)
    fail(ncclSystemError, "rank {} of this host cannot be reached over its unix socket", peer_rank);
  if (!is_own_user(socket_.get()))
    fail(ncclSystemError, "the unix socket of rank {} belongs to another user", peer_rank);
  Purpose purpose;
  purpose.kind = Purpose::kMemory;
  purpose.from_rank = my_rank;
  purpose.to_rank = peer_rank;
  if (!authenticate(socket_.get(), secret, purpose, deadline, cancelled))
    fail(ncclSystemError, "rank {} of this host refused to share memory", peer_rank);
}

std::pair<Fd, uint64_t> MemoryLink::fetch(uint64_t id, Deadline deadline,
                                          const Cancelled& cancelled) {
  const auto receive = [&](Deadline until) {
    uint64_t size = 0;
    wait_readable(socket_.get(), until, cancelled);
    Fd fd = receive_descriptor(socket_.get(), size, until);
    owed_ = false;
    return std::pair(std::move(fd), size);
  };
  if (owed_) receive(std::min(deadline, in_seconds(kLateSeconds)));  // and forgets it
  send_all(socket_.get(), std::as_bytes(std::span(&id, 1)), deadline);
  owed_ = true;
  return receive(deadline);
}

std::unique_ptr<Arena> MemoryLink::fetch_arena(const ArenaLayout& layout, Deadline deadline,
                                               const Cancelled& cancelled) {
  std::lock_guard lock(mutex_);
  auto [fd, size] = fetch(0, deadline, cancelled);
  if (!fd || size != layout.size())
    fail(ncclInternalError, "a peer's arena has {} bytes, {} were expected", size, layout.size());
  require_sealed_memfd(fd.get(), layout.size());
  return std::make_unique<Arena>(layout, std::move(fd));
}

const std::byte* MemoryLink::map(uint64_t segment) noexcept {
  const auto memory = keep(segment);
  return memory == nullptr ? nullptr : memory->data();
}

std::shared_ptr<const Mapping> MemoryLink::keep(uint64_t segment) noexcept {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < mapped_.size(); i++) {
    if (mapped_[i].segment != segment) continue;
    if (i > 0)
      std::rotate(mapped_.begin(), mapped_.begin() + static_cast<std::ptrdiff_t>(i),
                  mapped_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    return mapped_.front().memory;
  }
  try {
    auto [fd, size] = fetch(segment, in_seconds(10));
    if (!fd) return nullptr;
    require_sealed_memfd(fd.get(), size);
    // Most recent first. The peer does not announce when it frees a segment, so the oldest mapping
    // is dropped.
    if (mapped_.size() >= kMostMapped) mapped_.pop_back();
    auto memory = std::make_shared<const Mapping>(Mapping::shared(fd.get(), size));
    mapped_.insert(mapped_.begin(), Mapped{segment, std::move(memory)});
    return mapped_.front().memory;
  } catch (const Error& error) {
    WEFT_WARN("cannot map a peer's segment: {}", error.what());
    return nullptr;
  }
}

std::pair<Fd, uint64_t> MemoryLink::borrow(uint64_t id) {
  std::lock_guard lock(mutex_);
  return fetch(id, in_seconds(10));
}

MemoryServer::~MemoryServer() {
  EventLoop::instance().run([this] {
    for (const Fd& fd : connections_) EventLoop::instance().unwatch(fd.get());
    connections_.clear();
  });
}

void MemoryServer::add(Fd connection) {
  const int fd = connection.get();
  connections_.push_back(std::move(connection));
  EventLoop::instance().watch(fd, EPOLLIN, [this, fd](uint32_t) { answer(fd); });
}

void MemoryServer::answer(int fd) {
  uint64_t id = 0;
  const ssize_t got = recv(fd, &id, sizeof id, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  bool answered = false;
  if (got == static_cast<ssize_t>(sizeof id)) {
    if (id == 0) {
      answered = send_descriptor(fd, arena_->size(), arena_->fd());
    } else {
      const auto send = [&](int shared, size_t size) {
        answered = send_descriptor(fd, size, shared);
      };
      if (!Segments::instance().share(id, send) && !Descriptors::instance().share(id, send))
        answered = send_descriptor(fd, 0, -1);
    }
  }
  if (answered) return;
  EventLoop::instance().unwatch(fd);
  std::erase_if(connections_, [fd](const Fd& c) { return c.get() == fd; });
}

}  // namespace weft
