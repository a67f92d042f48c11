// See control.h.
#include "plugins/net_verbs/control.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace weft::net_verbs {
namespace {

constexpr size_t kHeadBytes = 8, kMostPayload = 1 << 16;
// A host that does not answer for this long is gone.
constexpr int kIdleSeconds = 5, kProbeSeconds = 5, kProbes = 3, kUnsentMs = 20000;

}  // namespace

Control::Control(Fd socket) : socket_(std::move(socket)) {
  const int on = 1;
  setsockopt(descriptor(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(descriptor(), IPPROTO_TCP, TCP_KEEPIDLE, &kIdleSeconds, sizeof kIdleSeconds);
  setsockopt(descriptor(), IPPROTO_TCP, TCP_KEEPINTVL, &kProbeSeconds, sizeof kProbeSeconds);
  setsockopt(descriptor(), IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
  setsockopt(descriptor(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnsentMs, sizeof kUnsentMs);
}

void Control::move() {
  while (!out_.empty() && !ended_) {
    const ssize_t sent = send(descriptor(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent <= 0) break;  // the error shows up when receiving, after the peer's last words
    out_.erase(0, static_cast<size_t>(sent));
  }
  std::array<char, 4096> buffer;
  while (!ended_) {
    const ssize_t got = recv(descriptor(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      ended_ = true;
      error_ = got < 0 ? errno : 0;
      return;
    }
    in_.append(buffer.data(), static_cast<size_t>(got));
  }
}

bool Control::hear(Word& word) {
  uint32_t head[2];
  if (in_.size() < kHeadBytes) return false;
  std::memcpy(head, in_.data(), sizeof head);
  if (head[1] > kMostPayload)
    fail(ncclInternalError, "what the peer says makes no sense: does it use the same plugin?");
  if (in_.size() < kHeadBytes + head[1]) return false;
  word = static_cast<Word>(head[0]);
  payload_ = in_.substr(kHeadBytes, head[1]);
  in_.erase(0, kHeadBytes + head[1]);
  return true;
}

}  // namespace weft::net_verbs
