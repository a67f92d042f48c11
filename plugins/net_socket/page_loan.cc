// See page_loan.h.
#include "plugins/net_socket/page_loan.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>

namespace weft::net_socket {
namespace {

// Pages in a pipe are few by default. More are a favour of the kernel: a user may have so many.
constexpr int kPipeBytes = 512 << 10;

// splice() has no MSG_NOSIGNAL: the signal of a peer that closed, which also comes when some bytes
// have left before, is held off and taken away. (Who blocks it has it pending, as with write().)
ssize_t splice_quietly(int from, int to, size_t size, unsigned flags) {
  sigset_t pipe_signal, before, waiting;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  const ssize_t moved = splice(from, nullptr, to, nullptr, size, flags);
  const int error = errno;
  const timespec at_once{};
  if (sigismember(&before, SIGPIPE) == 0 && sigpending(&waiting) == 0 &&
      sigismember(&waiting, SIGPIPE) == 1)
    while (sigtimedwait(&pipe_signal, nullptr, &at_once) < 0 && errno == EINTR) {
    }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return moved;
}

}  // namespace

// Puts pages into the pipe. False: it cannot be done here, with this memory or at all.
bool PageLoan::fill(const std::byte* data, size_t size) {
  if (!pipe_in_) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return false;
    pipe_out_ = Fd(ends[0]);
    pipe_in_ = Fd(ends[1]);
    fcntl(pipe_in_.get(), F_SETPIPE_SZ, kPipeBytes);
  }
  const iovec part{const_cast<std::byte*>(data), size};
  const ssize_t taken = vmsplice(pipe_in_.get(), &part, 1, SPLICE_F_NONBLOCK);
  if (taken <= 0) return false;
  in_pipe_ = static_cast<size_t>(taken);
  return true;
}

ssize_t PageLoan::send(const std::byte* data, size_t size) {
  size_t left = 0;
  while (left < size) {
    if (in_pipe_ == 0 && !fill(data + left, size - left)) {
      on_ = false;
      break;
    }
    const bool more = left + in_pipe_ < size;
    const ssize_t moved = splice_quietly(pipe_out_.get(), fd_, in_pipe_,
                                         SPLICE_F_NONBLOCK | (more ? SPLICE_F_MORE : 0u));
    if (moved < 0 && left == 0) return -1;
    if (moved < 0) break;  // what is wrong is asked for again
    in_pipe_ -= static_cast<size_t>(moved);
    left += static_cast<size_t>(moved);
  }
  return static_cast<ssize_t>(left);
}

bool PageLoan::returned(uint32_t number) {
  while (returned_ < number && !broken_) {
    std::array<std::byte, 64> words;
    const ssize_t got = recv(fd_, words.data(), words.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
      broken_ = true;
      error_ = got == 0 ? 0 : errno;
      return false;
    }
    returned_ += static_cast<uint32_t>(got);
  }
  return returned_ >= number;
}

}  // namespace weft::net_socket
