// One direction of a socket whose bytes travel in sealed records: a size (4 bytes, twice), the
// data, a tag. It takes the place of sendmsg() and recv() when WEFT_WIRE is check or encrypt.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/seal.h"

namespace weft::net_socket {

// Both never wait. One thread at a time; the socket must outlive them.
class SealedSender {
 public:
  // Records of this size stay in a core's cache between their seal and the kernel.
  static constexpr size_t kMostBytes = 64u << 10;

  SealedSender(int fd, const Seal& seal) : fd_(fd), seal_(seal) {}

  // As sendmsg(). Returns the number of bytes whose records have left. The next call begins with
  // the bytes that follow: some of them may be in a record already.
  ssize_t send(std::span<const iovec> parts);

 private:
  void make_record(std::span<const iovec> parts, size_t skip);

  int fd_;
  Seal seal_;
  std::vector<std::byte> record_;
  size_t held_ = 0;             // bytes of data in the record; 0: no record
  size_t sent_ = 0, size_ = 0;  // bytes of the record
};

class SealedReceiver {
 public:
  SealedReceiver(int fd, const Seal& seal) : fd_(fd), seal_(seal) {}

  // As recv(), with EBADMSG for a record that was changed on the way.
  ssize_t receive(std::byte* to, size_t most);

 private:
  ssize_t take_record(std::byte* to, size_t most);
  ssize_t fill();

  int fd_;
  Seal seal_;
  std::vector<std::byte> buffer_;
  size_t begin_ = 0, end_ = 0;            // of what came and is not opened
  size_t open_begin_ = 0, open_end_ = 0;  // of opened data that is still here
};

}  // namespace weft::net_socket
