// What fuzzers of wire formats share: input in pieces, and a socket that delivers it.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "src/base/error.h"
#include "src/base/handles.h"

namespace weft::test {

inline void require(bool holds) {
  if (!holds) std::abort();
}

// Takes values from the front of the input; zeros when it is used up.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(data, size) {}
  bool empty() const { return rest_.empty(); }
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const uint8_t value = rest_.front();
    rest_ = rest_.subspan(1);
    return value;
  }
  std::span<const uint8_t> bytes(size_t most) {
    const auto taken = rest_.first(std::min(most, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const uint8_t> rest_;
};

// Two ends of a connection. What is put into `far` can be read from `near`.
struct Connection {
  Connection() {
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    near = Fd(ends[0]);
    far = Fd(ends[1]);
  }
  void put(std::span<const uint8_t> data) const {
    send(far.get(), data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  Fd near, far;
};

// Calls `read` with the input as text. It may throw Error, with one line.
template <typename Read>
int check_text(const uint8_t* data, size_t size, Read read) {
  try {
    read(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const Error& error) {
    const std::string_view text = error.what();
    require(!text.empty() && text.find('\n') == std::string_view::npos);
  }
  return 0;
}

}  // namespace weft::test
