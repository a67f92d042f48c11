// See sender.h.
#include "plugins/net_socket/sender.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <string_view>

#include "src/transport/socket.h"

namespace weft::net_socket {

Sender::Sender(std::vector<Fd> sockets, int threads, std::string peer, bool lends,
               bool fixed_stripes, const std::vector<Seal>& seals)
    : SocketSet(std::move(sockets), threads, std::move(peer)),
      work_(count()),
      local_(is_connected_locally(descriptor(0))),
      stripes_(local_ && !fixed_stripes ? 1 : static_cast<uint32_t>(count()), fixed_stripes),
      zero_copy_(descriptor(0), !local_ && count() == 1 && seals.empty()),
      loan_(descriptor(0), lends && local_ && seals.empty()) {
  for (size_t s = 0; s < seals.size(); s++) sealed_.emplace_back(descriptor(s), seals[s]);
  for (Request& request : requests_) request.sender = this;
  // On one machine there is no congestion to control, and BBR's timers cost time: 8 pairs of
  // processes move 41 GB/s with reno instead of 34. Every kernel has reno.
  constexpr std::string_view kPlain = "reno";
  for (size_t s = 0; local_ && s < count(); s++)
    setsockopt(descriptor(s), IPPROTO_TCP, TCP_CONGESTION, kPlain.data(), kPlain.size());
  start_threads();
}

Sender::Request* Sender::start(const void* head, size_t head_size, const void* body,
                               size_t body_size) {
  Request& request = requests_[started_ % requests_.size()];
  if (request.used) return nullptr;
  request.used = true;
  request.head = static_cast<const std::byte*>(head);
  request.body = static_cast<const std::byte*>(body);
  request.head_frame = {head_size, messages_, 1};
  if (head != nullptr) messages_++;
  const auto stripes = static_cast<uint16_t>(stripes_.choose(body_size));
  request.frame = {body_size, messages_++, stripes};
  request.last_zero_copy = 0;
  request.loan = head == nullptr && stripes == 1 && loan_.pays(body_size) ? loan_.begin() : 0;
  request.frame.lent = request.loan != 0 ? 1 : 0;
  request.stripes_left.store(request.frame.stripes, std::memory_order_relaxed);
  started_++;
  for (uint32_t s = 0; s < request.frame.stripes; s++) work_[s].queue.push(&request);
  if (request.frame.stripes > 1) wake();
  move_own();
  return &request;
}

bool Sender::complete(Request& request) {
  if (request.stripes_left.load(std::memory_order_acquire) != 0) move_own();
  if (request.stripes_left.load(std::memory_order_acquire) != 0) return false;
  if (!zero_copy_.returned(request.last_zero_copy) || !loan_.returned(request.loan)) {
    if (loan_.broken()) fail(loan_.error());
    move_own();  // moves the requests behind it
    return false;
  }
  if (request.frame.stripes > 1) hear();
  stripes_.sent(request.frame.size, request.frame.stripes);
  request.used = false;
  return true;
}

bool Sender::busy(size_t socket) const { return !work_[socket].queue.empty(); }

Moved Sender::move(size_t socket) {
  Work& work = work_[socket];
  Moved outcome = Moved::kNothing;
  while (Request* next = work.queue.front()) {
    Request& request = *next;
    const Stripe stripe =
        stripe_of(request.frame.size, request.frame.stripes, static_cast<uint32_t>(socket));
    // The parts of the message that this socket sends. work.sent bytes have left already.
    std::array<iovec, 4> parts{};
    size_t used = 0;
    uint64_t skip = work.sent, left = 0;
    const auto part = [&](const void* data, uint64_t size) {
      const uint64_t gone = std::min(skip, size);
      skip -= gone;
      if (gone == size) return;
      parts[used++] = {const_cast<char*>(static_cast<const char*>(data)) + gone, size - gone};
      left += size - gone;
    };
    if (socket == 0 && request.head != nullptr) {
      part(&request.head_frame, sizeof request.head_frame);
      part(request.head, request.head_frame.size);
    }
    if (socket == 0) part(&request.frame, sizeof request.frame);
    const bool lent = request.loan != 0 && loan_.works();
    const bool only_frame = lent && used > 0;  // the pages follow
    if (!only_frame) part(request.body + stripe.begin, stripe.end - stripe.begin);
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = used;
    const bool zero_copy = socket == 0 && zero_copy_.pays(left);
    const int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (zero_copy ? ZeroCopy::kFlag : 0) |
                      (only_frame ? MSG_MORE : 0);
    const ssize_t sent =
        left == 0 ? 0
        : lent && !only_frame
            ? loan_.send(static_cast<const std::byte*>(parts[0].iov_base), parts[0].iov_len)
        : !sealed_.empty() ? sealed_[socket].send({parts.data(), used})
                           : sendmsg(descriptor(socket), &message, flags);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return outcome;
    if (sent < 0 && errno == ENOBUFS && zero_copy) {
      zero_copy_.give_up();  // no memory to pin: copy from now on
      continue;              // the same message
    }
    if (sent < 0) {
      fail(errno);
      return Moved::kBroken;
    }
    outcome = Moved::kSome;
    if (zero_copy) request.last_zero_copy = zero_copy_.sent();
    work.sent += static_cast<uint64_t>(sent);
    if (only_frame || (lent && !loan_.works())) continue;  // continue with the rest of the message
    if (static_cast<uint64_t>(sent) < left) return outcome;
    work.sent = 0;
    work.queue.pop();
    tell(socket);
    request.stripes_left.fetch_sub(1, std::memory_order_acq_rel);
  }
  return outcome;
}

short Sender::direction() const { return POLLOUT; }

int Sender::waits_for(pollfd* descriptors, int most) const {
  int used = SocketSet::waits_for(descriptors, most);
  if (used < most && loan_.pending()) descriptors[used++] = {descriptor(0), POLLIN, 0};
  if (used > 0 || most == 0 || !zero_copy_.pending()) return used;
  descriptors[0] = {descriptor(0), 0, 0};  // the kernel's notifications come as errors
  return 1;
}

}  // namespace weft::net_socket
