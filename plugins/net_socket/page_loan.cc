// See page_loan.h.
#include "plugins/net_socket/page_loan.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "plugins/common/errors.h"

namespace weft::net_socket {
namespace {

// The kernel limits the pages that a user may have in all pipes. A user beyond the limit gets pipes
// that are too small to pay off.
constexpr int kPipeBytes = 512 << 10, kLeastPipeBytes = 64 << 10;

// splice() has no MSG_NOSIGNAL. If the peer closed, SIGPIPE comes even if some bytes were sent
// before. So the signal is blocked and then consumed.
ssize_t splice_quietly(int from, int to, size_t size, unsigned flags) {
  sigset_t pipe_signal, mask, before, after;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &mask);
  sigpending(&before);
  const ssize_t moved = splice(from, nullptr, to, nullptr, size, flags);
  const int error = errno;
  sigpending(&after);
  const timespec at_once{};
  if (sigismember(&before, SIGPIPE) == 0 && sigismember(&after, SIGPIPE) == 1)
    while (sigtimedwait(&pipe_signal, nullptr, &at_once) < 0 && errno == EINTR) {
    }
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  errno = error;
  return moved;
}

}  // namespace

// Pages in the pipe have not been sent, so the caller sends them by copying. If the connection
// failed, that call returns the error.
void PageLoan::give_up(const char* what) {
  if (errno != EPIPE && errno != ECONNRESET)
    net_common::inform(fmt::format("pages are copied and not lent from now on: {}: {}", what,
                                   std::strerror(errno)));
  on_ = false;
  in_pipe_ = 0;
  pipe_in_.reset();
  pipe_out_.reset();
}

bool PageLoan::make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    give_up("cannot make a pipe");
    return false;
  }
  pipe_out_ = Fd(ends[0]);
  pipe_in_ = Fd(ends[1]);
  if (fcntl(pipe_in_.get(), F_SETPIPE_SZ, kPipeBytes) >= 0 ||
      fcntl(pipe_in_.get(), F_GETPIPE_SZ) >= kLeastPipeBytes)
    return true;
  give_up("cannot make a pipe large enough");
  return false;
}

// Puts pages into the pipe.
bool PageLoan::fill(const std::byte* data, size_t size) {
  if (!pipe_in_ && !make_pipe()) return false;
  const iovec part{const_cast<std::byte*>(data), size};
  const ssize_t taken = vmsplice(pipe_in_.get(), &part, 1, SPLICE_F_NONBLOCK);
  if (taken <= 0) {
    give_up("vmsplice");
    return false;
  }
  in_pipe_ = static_cast<size_t>(taken);
  return true;
}

ssize_t PageLoan::send(const std::byte* data, size_t size) {
  size_t gone = 0;
  while (gone < size) {
    if (in_pipe_ == 0 && !fill(data + gone, size - gone)) break;
    const bool more = gone + in_pipe_ < size;
    const ssize_t moved = splice_quietly(pipe_out_.get(), fd_, in_pipe_,
                                         SPLICE_F_NONBLOCK | (more ? SPLICE_F_MORE : 0u));
    if (moved < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (gone == 0) return -1;
      break;
    }
    if (moved <= 0) {
      give_up("splice");
      break;
    }
    in_pipe_ -= static_cast<size_t>(moved);
    gone += static_cast<size_t>(moved);
  }
  return static_cast<ssize_t>(gone);
}

bool PageLoan::returned(uint64_t number) {
  while (returned_ < number && !broken_) {
    std::array<std::byte, 64> words;
    const ssize_t got = recv(fd_, words.data(), words.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
      broken_ = true;
      error_ = got == 0 ? 0 : errno;
      return false;
    }
    returned_ += static_cast<uint64_t>(got);
  }
  return returned_ >= number;
}

}  // namespace weft::net_socket
