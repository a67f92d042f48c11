// Blocking socket work with deadlines, and passing descriptors over unix sockets.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include "src/base/handles.h"
#include "src/transport/address.h"

namespace weft {

using Deadline = std::chrono::steady_clock::time_point;
Deadline in_seconds(double seconds);

// Listening sockets. Port 0 lets the kernel choose; the dual-stack wildcard address is used unless
// one is given. One that somebody holds, perhaps a connection that is about to end, is tried again
// until `patience`.
Fd listen_tcp(const Address* address, uint16_t& port, Deadline patience = {});
Fd listen_unix(const std::string& abstract_name);

// Return an empty Fd when nobody answers there (refused, unreachable); throw on errors of this
// machine.
Fd connect_tcp(const Address& address, Deadline deadline);
Fd connect_unix(const std::string& abstract_name);

// Whether a socket is its own peer. Who tries again and again to reach a port of this machine where
// nobody listens, and which the kernel hands out to outgoing connections, meets itself in the end.
// Such a socket is set to let the port go at once when it is closed: the listener needs it.
bool is_connected_to_itself(int fd);
// Whether the peer has the same address: what is sent does not leave this machine.
bool is_connected_locally(int fd);

// Whole buffers or an exception: Error(ncclRemoteError) when the peer closes, ncclSystemError on a
// time-out.
void send_all(int fd, std::span<const std::byte> data, Deadline deadline);
void receive_all(int fd, std::span<std::byte> data, Deadline deadline);

// One value and one descriptor (-1: none) in one message.
bool send_descriptor(int socket, uint64_t value, int fd) noexcept;
Fd receive_descriptor(int socket, uint64_t& value, Deadline deadline);

void set_blocking(int fd, bool blocking);
void set_no_delay(int fd);

}  // namespace weft
