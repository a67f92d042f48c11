// See receiver.h.
#include "plugins/net_socket/receiver.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::net_socket {

Receiver::Receiver(std::vector<Fd> sockets, int threads, std::string peer,
                   const std::vector<Seal>& seals)
    : SocketSet(std::move(sockets), threads, std::move(peer)), work_(count()) {
  for (size_t s = 0; s < seals.size(); s++) sealed_.emplace_back(descriptor(s), seals[s]);
  for (Request& request : requests_) request.receiver = this;
  start_threads();
}

Receiver::Request* Receiver::start(void* data, size_t room) {
  Request& request = requests_[started_ % requests_.size()];
  if (request.used) return nullptr;
  started_++;
  request.used = true;
  request.data = static_cast<std::byte*>(data);
  request.room = room;
  request.stripes = 0;
  request.stripes_left.store(1, std::memory_order_relaxed);  // until the frame gives the number
  work_[0].queue.push(&request);
  return &request;
}

bool Receiver::complete(Request& request) {
  if (request.stripes_left.load(std::memory_order_acquire) != 0 && !broken()) move_own();
  if (request.stripes_left.load(std::memory_order_acquire) != 0) return false;
  if (request.lent && owed_ > 0) give_back();
  if (request.lent && owed_ > 0) return false;
  if (request.stripes > 1) hear();
  request.used = false;
  return true;
}

size_t Receiver::from_stash(std::byte* to, size_t most) {
  const size_t size = std::min(most, stash_end_ - stash_begin_);
  std::memcpy(to, stash_.data() + stash_begin_, size);
  stash_begin_ += size;
  if (stash_begin_ == stash_end_) stash_begin_ = stash_end_ = 0;
  return size;
}

// Reads the available bytes from a socket. Socket 0 also fills the stash, which must be empty. 0:
// nothing available. Negative: broken.
ssize_t Receiver::read_more(size_t socket, std::byte* to, size_t most) {
  std::array<iovec, 2> parts{{{to, most}}};
  // Only this thread may access the stash.
  if (socket == 0) parts[1] = {stash_.data(), stash_room()};
  msghdr message{};
  message.msg_iov = parts.data() + (most == 0 ? 1 : 0);
  message.msg_iovlen = (most == 0 || socket != 0) ? 1 : 2;
  const ssize_t got = sealed_.empty() ? recvmsg(descriptor(socket), &message, MSG_DONTWAIT)
                                      : sealed_[socket].receive(to, most);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (got <= 0) {
    fail(got == 0 ? 0 : errno);
    return -1;
  }
  const size_t direct = std::min(static_cast<size_t>(got), most);
  if (socket == 0) stash_end_ = static_cast<size_t>(got) - direct;
  return static_cast<ssize_t>(most == 0 ? static_cast<size_t>(got) : direct);
}

// True if the frame of the first message on socket 0 has been read.
bool Receiver::read_frame(Request& request) {
  Frame frame;
  if (stash_end_ - stash_begin_ < sizeof frame) {
    // Assembles a frame that came in pieces at the start of the stash.
    const size_t rest = stash_end_ - stash_begin_;
    std::memmove(stash_.data(), stash_.data() + stash_begin_, rest);
    stash_begin_ = 0;
    stash_end_ = rest;
    const size_t room = stash_room() - rest;
    const ssize_t got = sealed_.empty()
                            ? recv(descriptor(0), stash_.data() + rest, room, MSG_DONTWAIT)
                            : sealed_[0].receive(stash_.data() + rest, room);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
      fail(got == 0 ? 0 : errno);
      return false;
    }
    stash_end_ += static_cast<size_t>(got);
    if (stash_end_ < sizeof frame) return false;
  }
  from_stash(reinterpret_cast<std::byte*>(&frame), sizeof frame);
  if (frame.check != static_cast<uint32_t>(framed_) || frame.stripes == 0 ||
      frame.stripes > count()) {
    complaint_ = "the stream is out of step";
    fail(EPROTO);
    return false;
  }
  if (frame.size > request.room) {
    complaint_ =
        fmt::format("a message of {} bytes does not fit into {}", frame.size, request.room);
    fail(EMSGSIZE);
    return false;
  }
  framed_++;
  small_ = frame.size >= stash_.size() ? 0 : small_ + 1;
  request.size = frame.size;
  request.stripes = frame.stripes;
  request.lent = frame.lent != 0;
  request.stripes_left.store(frame.stripes, std::memory_order_relaxed);
  for (uint32_t s = 1; s < frame.stripes; s++) work_[s].queue.push(&request);
  if (frame.stripes > 1) wake();
  return true;
}

// An error is ignored: a sender that has gone does not wait.
void Receiver::give_back() {
  static constexpr std::array<std::byte, net_abi::kMaxRequests> kWords{};
  const ssize_t sent = send(descriptor(0), kWords.data(), std::min(owed_, kWords.size()),
                            MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0) owed_ -= static_cast<size_t>(sent);
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) owed_ = 0;
}

Moved Receiver::move(size_t socket) {
  Work& work = work_[socket];
  Moved outcome = Moved::kNothing;
  if (socket == 0 && owed_ > 0) give_back();
  while (Request* request = work.queue.front()) {
    if (request->stripes == 0 && !read_frame(*request)) return broken() ? Moved::kBroken : outcome;
    const Stripe stripe = stripe_of(request->size, request->stripes, static_cast<uint32_t>(socket));
    while (work.got < stripe.end - stripe.begin) {
      std::byte* to = request->data + stripe.begin + work.got;
      const size_t rest = stripe.end - stripe.begin - work.got;
      ssize_t got = 0;
      if (socket == 0 && stash_begin_ < stash_end_) {
        got = static_cast<ssize_t>(from_stash(to, rest));
      } else {
        got = read_more(socket, to, rest);
      }
      if (got < 0) return Moved::kBroken;
      if (got == 0) return outcome;
      work.got += static_cast<uint64_t>(got);
      outcome = Moved::kSome;
    }
    work.got = 0;
    work.queue.pop();
    tell(socket);
    if (request->lent) {  // it has one stripe
      owed_++;
      give_back();
    }
    request->stripes_left.fetch_sub(1, std::memory_order_acq_rel);
    outcome = Moved::kSome;
  }
  return outcome;
}

short Receiver::direction() const { return POLLIN; }

}  // namespace weft::net_socket
