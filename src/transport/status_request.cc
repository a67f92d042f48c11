// See status_request.h.
#include "src/transport/status_request.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include "src/base/error.h"
#include "src/transport/handshake.h"

namespace weft {

SocketPeer socket_peer(int fd) {
  int domain = 0;
  socklen_t size = sizeof domain;
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX) return {};
  ucred peer{};
  size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {};
  return {peer.pid, peer.uid};
}

std::string request_status(int fd, Deadline deadline) {
  ask_status(fd, deadline);
  uint64_t size = 0;
  Fd answer;
  try {
    answer = receive_descriptor(fd, size, deadline);
  } catch (const Error& error) {
    fail(error.code(), "the process did not send its status");
  }
  constexpr uint64_t kMost = 64 << 20;
  struct stat file {};
  if (!answer || size > kMost || fstat(answer.get(), &file) != 0 ||
      static_cast<uint64_t>(file.st_size) != size)
    fail(ncclSystemError, "the process sent no status");
  std::string text(size, ' ');
  if (pread(answer.get(), text.data(), size, 0) != static_cast<ssize_t>(size))
    fail(ncclSystemError, "the process sent half a status");
  return text;
}

}  // namespace weft
