// See sockets.h.
#include "plugins/net_socket/sockets.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "src/base/error.h"

namespace weft::net_socket {

SocketSet::SocketSet(std::vector<Fd> sockets, int threads, std::string peer)
    : sockets_(std::move(sockets)),
      threads_wanted_(std::min<int>(threads, static_cast<int>(sockets_.size()) - 1)),
      peer_(std::move(peer)) {
  if (threads_wanted_ == 0) return;
  notify_fd_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!notify_fd_) fail_errno(errno, "cannot make a connection's eventfd");
}

SocketSet::~SocketSet() = default;

void SocketSet::start_threads() {
  for (int t = 0; t < threads_wanted_; t++) {
    threads_.emplace_back([this, t] { serve(static_cast<size_t>(t)); });
    pthread_setname_np(threads_.back().native_handle(), "weft-socket");
  }
}

void SocketSet::stop_threads() {
  stopping_.store(true, std::memory_order_release);
  wake();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void SocketSet::wake() {
  if (threads_wanted_ == 0) return;
  work_.fetch_add(1, std::memory_order_release);
  work_.notify_all();
}

void SocketSet::move_own() {
  for (size_t s = 0; s < sockets_.size() && !broken(); s++)
    if (!has_thread(s)) move(s);
}

void SocketSet::tell(size_t socket) {
  if (!has_thread(socket)) return;
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t written = write(notify_fd_.get(), &one, sizeof one);
}

void SocketSet::hear() {
  if (!notify_fd_) return;
  uint64_t ignored = 0;
  [[maybe_unused]] ssize_t got = read(notify_fd_.get(), &ignored, sizeof ignored);
}

int SocketSet::waits_for(pollfd* descriptors, int most) const {
  int used = 0;
  if (notify_fd_ && used < most) descriptors[used++] = {notify_fd_.get(), POLLIN, 0};
  for (size_t s = 0; s < sockets_.size() && used < most; s++)
    if (busy(s) && !has_thread(s)) descriptors[used++] = {descriptor(s), direction(), 0};
  return used;
}

void SocketSet::fail(int error) {
  error_.store(error, std::memory_order_relaxed);
  broken_.store(true, std::memory_order_release);
}

void SocketSet::serve(size_t thread) {
  const auto mine = [&](size_t s) {
    return s > 0 && (s - 1) % static_cast<size_t>(threads_wanted_) == thread;
  };
  while (!stopping_.load(std::memory_order_acquire)) {
    const uint32_t seen = work_.load(std::memory_order_acquire);
    bool moved = false;
    std::vector<pollfd> waiting;
    for (size_t s = 1; s < sockets_.size() && !broken(); s++) {
      if (!mine(s) || !busy(s)) continue;
      moved = move(s) == Moved::kSome || moved;
      if (busy(s)) waiting.push_back({descriptor(s), direction(), 0});
    }
    if (moved) continue;
    if (broken()) tell(1);
    if (waiting.empty() || broken()) {
      work_.wait(seen, std::memory_order_acquire);
    } else {
      poll(waiting.data(), waiting.size(), 100);
    }
  }
}

}  // namespace weft::net_socket
