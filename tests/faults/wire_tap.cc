// See wire_tap.h.
#include "tests/faults/wire_tap.h"

#include <dlfcn.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/support/sampling.h"

namespace {

using Clock = std::chrono::steady_clock;

std::atomic<size_t> damage_least{0};  // 0: nothing is to be damaged
std::atomic<uint64_t> damage_draw{0};
std::atomic<void (*)()> damage_then{nullptr};
std::atomic<int64_t> delay_until{0};
std::atomic<uint64_t> delay_seed{0};
std::atomic<bool> words_shown{false};
std::string_view words_wanted;

bool is_tcp(int fd) {
  int domain = 0;
  socklen_t length = sizeof domain;
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 &&
         (domain == AF_INET || domain == AF_INET6);
}

int64_t now() { return Clock::now().time_since_epoch().count(); }

void come_late(int fd) {
  if (delay_until == 0 || now() > delay_until || !is_tcp(fd)) return;
  std::this_thread::sleep_for(std::chrono::microseconds(weft::test::mix(delay_seed++) % 20000));
}

void look_at(int fd, const void* data, size_t size) {
  if (words_wanted.empty() || size < weft::test::WireTap::kLeastData || !is_tcp(fd)) return;
  if (std::string_view(static_cast<const char*>(data), size).find(words_wanted) !=
      std::string_view::npos)
    words_shown = true;
}

using Send = ssize_t (*)(int, const void*, size_t, int);
using SendMessage = ssize_t (*)(int, const msghdr*, int);

ssize_t send_damaged(Send real, int fd, const void* data, size_t size, int flags) {
  const uint64_t bit = damage_draw % (8 * size);
  std::vector<char> changed(static_cast<const char*>(data), static_cast<const char*>(data) + size);
  changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
  // Before it leaves: the peer may answer at once.
  void (*const then)() = damage_then.exchange(nullptr);
  if (then != nullptr) then();
  const ssize_t sent = real(fd, changed.data(), size, flags);
  // What has not left is sent again, and that is not changed.
  if (sent <= static_cast<ssize_t>(bit / 8)) damage_least = size;
  return sent;
}

}  // namespace

extern "C" [[gnu::visibility("default")]] ssize_t send(int fd, const void* data, size_t size,
                                                       int flags) {
  static const auto real = reinterpret_cast<Send>(dlsym(RTLD_NEXT, "send"));
  look_at(fd, data, size);
  come_late(fd);
  size_t least = damage_least;
  if (least == 0 || size < least || !is_tcp(fd) || !damage_least.compare_exchange_strong(least, 0))
    return real(fd, data, size, flags);
  return send_damaged(real, fd, data, size, flags);
}

extern "C" [[gnu::visibility("default")]] ssize_t sendmsg(int fd, const msghdr* message,
                                                          int flags) {
  static const auto real = reinterpret_cast<SendMessage>(dlsym(RTLD_NEXT, "sendmsg"));
  for (size_t i = 0; i < message->msg_iovlen; i++)
    look_at(fd, message->msg_iov[i].iov_base, message->msg_iov[i].iov_len);
  come_late(fd);
  return real(fd, message, flags);
}

namespace weft::test {

void WireTap::damage_next(size_t least, uint64_t draw, void (*then)()) {
  damage_draw = draw;
  damage_then = then;
  damage_least = least;
}

void WireTap::delay_for_a_second(uint64_t seed) {
  delay_seed = seed;
  delay_until =
      now() + std::chrono::duration_cast<Clock::duration>(std::chrono::seconds(1)).count();
}

void WireTap::look_for(std::string_view words) { words_wanted = words; }
bool WireTap::has_shown() { return words_shown; }

}  // namespace weft::test
