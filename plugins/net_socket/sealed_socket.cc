// See sealed_socket.h.
#include "plugins/net_socket/sealed_socket.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::net_socket {
namespace {

using RecordSize = uint32_t;
constexpr size_t kMostData = SealedSender::kMostBytes;
static_assert(kMostData == 1u << 16);

// The size travels twice, the second time with all bits changed: a receiver that believed a size
// that was changed on the way would wait for bytes that never come.
RecordSize coded(size_t size) {
  const auto less_one = static_cast<RecordSize>(size - 1);
  return less_one | ~less_one << 16;
}
// 0: the code is of no size.
size_t decoded(RecordSize code) {
  const size_t size = (code & 0xffff) + 1;
  return code == coded(size) ? size : 0;
}
constexpr size_t kMostRecord = sizeof(RecordSize) + kMostData + Seal::kTagBytes;

}  // namespace

// Seals the bytes of `parts` after the first `skip`, at most kMostBytes.
void SealedSender::make_record(std::span<const iovec> parts, size_t skip) {
  record_.resize(kMostRecord);
  std::byte* const data = record_.data() + sizeof(RecordSize);
  const std::byte* from = data;
  held_ = 0;
  for (const iovec& part : parts) {
    const size_t gone = std::min(skip, part.iov_len);
    skip -= gone;
    const size_t size = std::min(part.iov_len - gone, kMostData - held_);
    const std::byte* at = static_cast<const std::byte*>(part.iov_base) + gone;
    if (held_ == 0 && size == kMostData) {
      from = at;  // fills the record alone: no copy
    } else if (size > 0) {
      std::memcpy(data + held_, at, size);
    }
    held_ += size;
  }
  const RecordSize size = coded(held_);
  std::memcpy(record_.data(), &size, sizeof size);
  seal_.seal(data, from, held_);
  size_ = sizeof(RecordSize) + held_ + Seal::kTagBytes;
  sent_ = 0;
}

ssize_t SealedSender::send(std::span<const iovec> parts) {
  size_t left = 0, taken = 0;
  for (const iovec& part : parts) left += part.iov_len;
  while (taken < left) {
    if (held_ == 0) make_record(parts, taken);
    const ssize_t sent =
        ::send(fd_, record_.data() + sent_, size_ - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    const bool full = sent < 0 && (errno == EAGAIN || errno == EINTR);
    if (sent < 0 && (!full || taken == 0)) return -1;
    if (full) break;
    sent_ += static_cast<size_t>(sent);
    if (sent_ < size_) continue;
    taken += held_;
    held_ = 0;
  }
  return static_cast<ssize_t>(taken);
}

// Reads what the socket has into the buffer. As recv().
ssize_t SealedReceiver::fill() {
  buffer_.resize(2 * kMostRecord);
  if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  const ssize_t got = recv(fd_, buffer_.data() + end_, buffer_.size() - end_, MSG_DONTWAIT);
  if (got > 0) end_ += static_cast<size_t>(got);
  return got;
}

// Opens the next record, into `to` if it fits there. 0: it is not complete.
ssize_t SealedReceiver::take_record(std::byte* to, size_t most) {
  RecordSize code = 0;
  if (end_ - begin_ < sizeof code) return 0;
  std::memcpy(&code, buffer_.data() + begin_, sizeof code);
  const size_t size = decoded(code);
  if (size == 0) {
    errno = EBADMSG;
    return -1;
  }
  const size_t whole = sizeof code + size + Seal::kTagBytes;
  if (end_ - begin_ < whole) return 0;
  std::byte* data = buffer_.data() + begin_ + sizeof code;
  const bool fits = size <= most;
  if (!seal_.open(fits ? to : data, data, size)) {
    errno = EBADMSG;
    return -1;
  }
  open_begin_ = begin_ + sizeof code;
  open_end_ = fits ? open_begin_ : open_begin_ + size;
  begin_ += whole;
  if (fits) return static_cast<ssize_t>(size);
  std::memcpy(to, data, most);
  open_begin_ += most;
  return static_cast<ssize_t>(most);
}

ssize_t SealedReceiver::receive(std::byte* to, size_t most) {
  if (open_begin_ < open_end_) {
    const size_t size = std::min(most, open_end_ - open_begin_);
    std::memcpy(to, buffer_.data() + open_begin_, size);
    open_begin_ += size;
    return static_cast<ssize_t>(size);
  }
  for (;;) {
    if (const ssize_t taken = take_record(to, most); taken != 0) return taken;
    if (const ssize_t got = fill(); got <= 0) return got;
  }
}

}  // namespace weft::net_socket
