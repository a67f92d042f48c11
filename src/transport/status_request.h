// The client's side of Acceptor::serve_status().
#pragma once

#include <cstdint>
#include <string>

#include "src/transport/socket.h"

namespace weft {

// The user and the process at the other end of a unix socket; uid -1: it is no unix socket.
struct SocketPeer {
  int pid = 0;
  int64_t uid = -1;
};
SocketPeer socket_peer(int fd);

// Throws Error if there is no answer before the deadline.
std::string request_status(int fd, Deadline deadline);

}  // namespace weft
