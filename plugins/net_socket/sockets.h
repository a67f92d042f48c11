// The sockets of one connection, for one direction of data. Socket 0 carries a frame before every
// message, and the first stripe of large messages. The other sockets carry the other stripes,
// without frames. The connection's own threads move the stripes of the sockets assigned to them.
// The caller of progress() moves all other sockets.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "src/base/handles.h"
#include "src/transport/net_abi/common.h"

struct pollfd;

namespace weft::net_socket {

struct Frame {
  uint64_t size = 0;
  uint32_t check = 0;  // number of the message, to detect a stream out of step
  uint16_t stripes = 1;
  uint16_t lent = 0;  // not 0: the pages are the sender's, which waits for a byte, see page_loan.h
};
static_assert(sizeof(Frame) == 16);

// The range of stripe `index` of `count` in a message.
struct Stripe {
  uint64_t begin = 0, end = 0;
};
inline Stripe stripe_of(uint64_t size, uint32_t count, uint32_t index) {
  const uint64_t share = (size / count + 4095) / 4096 * 4096;
  const auto boundary = [&](uint64_t n) { return n * share < size ? n * share : size; };
  return {boundary(index), index + 1 == count ? size : boundary(index + 1)};
}

// The requests of one socket, in order. One thread pushes, one thread pops.
template <typename Request>
class WorkQueue {
 public:
  bool empty() const { return out_.load() == in_.load(std::memory_order_acquire); }
  Request* front() const { return empty() ? nullptr : work_[out_.load() % work_.size()]; }
  void push(Request* request) {
    const uint32_t in = in_.load(std::memory_order_relaxed);
    work_[in % work_.size()] = request;
    in_.store(in + 1, std::memory_order_release);
  }
  void pop() { out_.store(out_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

 private:
  std::array<Request*, net_abi::kMaxRequests> work_{};
  std::atomic<uint32_t> in_{0}, out_{0};
};

enum class Moved { kNothing, kSome, kBroken };

class SocketSet {
 public:
  SocketSet(std::vector<Fd> sockets, int threads, std::string peer);
  virtual ~SocketSet();
  SocketSet(const SocketSet&) = delete;
  SocketSet& operator=(const SocketSet&) = delete;

  const std::string& peer() const { return peer_; }
  size_t count() const { return sockets_.size(); }
  int descriptor(size_t socket) const { return sockets_[socket].get(); }
  bool broken() const { return broken_.load(std::memory_order_acquire); }
  // errno, or 0: the peer closed.
  int error() const { return error_.load(std::memory_order_relaxed); }
  // Descriptors to sleep on until progress is possible. Returns the number written, at most `most`.
  virtual int waits_for(pollfd* descriptors, int most) const;

 protected:
  // Moves all data that one socket can move now. Different threads may move different sockets.
  virtual Moved move(size_t socket) = 0;
  // Whether the socket still has work. False lets its thread sleep until wake().
  virtual bool busy(size_t socket) const = 0;
  virtual short direction() const = 0;  // POLLIN or POLLOUT

  // Derived constructors and destructors call these, because threads use move().
  void start_threads();
  void stop_threads();
  void wake();  // there is more work
  // Moves all sockets that have no thread, for the caller's thread.
  void move_own();
  bool has_thread(size_t socket) const { return socket > 0 && threads_wanted_ > 0; }
  // A thread that sleeps on waits_for() does not see the work of the connection's threads. They
  // call tell() before they count a stripe as done. The user calls hear() when the request is
  // complete. So no notification is lost or left over.
  void tell(size_t socket);
  void hear();
  void fail(int error);

 private:
  void serve(size_t thread);

  std::vector<Fd> sockets_;
  const int threads_wanted_;
  const std::string peer_;
  Fd notify_fd_;  // eventfd; only if there are threads
  std::vector<std::thread> threads_;
  std::atomic<uint32_t> work_{0};
  std::atomic<bool> stopping_{false}, broken_{false};
  std::atomic<int> error_{0};
};

}  // namespace weft::net_socket
