// Blocking socket operations with deadlines, and passing descriptors over unix sockets.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "src/base/handles.h"
#include "src/transport/address.h"

namespace weft {

using Deadline = std::chrono::steady_clock::time_point;
Deadline in_seconds(double seconds);

// Listening sockets. Port 0 lets the kernel choose. Without an address they use the dual-stack
// wildcard address. If an address is in use, perhaps by a connection that is about to end, they try
// again until `patience`.
Fd listen_tcp(const Address* address, uint16_t& port, Deadline patience = {});
// Once. Returns an empty Fd and sets `error` if the address cannot be used. A port other than 0
// must be free.
Fd try_listen_tcp(const Address* address, uint16_t& port, int& error);
Fd listen_unix(const std::string& abstract_name);

// Return an empty Fd if nobody answers (refused, unreachable). Throw on errors of this machine.
Fd connect_tcp(const Address& address, Deadline deadline);
Fd connect_unix(const std::string& abstract_name);

// Whether a socket is its own peer. This happens to a client that keeps trying a local port without
// a listener, if the kernel also uses that port for outgoing connections. Such a socket is set to
// release the port at once when it is closed: the listener needs it.
bool is_connected_to_itself(int fd);
// Whether the peer has the same address. Data then does not leave this machine.
bool is_connected_locally(int fd);
// The shortest time in which the peer's host has answered. 0: it is this machine, or not known.
double round_trip_us(int fd);

// Whether the process at the other end of a unix socket belongs to this process's user or to root.
bool is_own_user(int fd);

// Whole buffers or an exception: Error(ncclRemoteError) if the peer closes, ncclSystemError on a
// time-out.
void send_all(int fd, std::span<const std::byte> data, Deadline deadline);
void receive_all(int fd, std::span<std::byte> data, Deadline deadline);
// Waits until there is something to read, or the end. Throws Error at the deadline, or soon after
// `cancelled` returns true. nullptr: nothing cancels it.
using Cancelled = std::function<bool()>;
void wait_readable(int fd, Deadline deadline, const Cancelled& cancelled);

// One value and one descriptor (-1: none) in one message.
bool send_descriptor(int socket, uint64_t value, int fd) noexcept;
Fd receive_descriptor(int socket, uint64_t& value, Deadline deadline);

void set_blocking(int fd, bool blocking);
void set_no_delay(int fd);
// The connection breaks if the other host does not answer for this long. A process that is stopped
// does not matter: its host answers. Nothing happens to a unix socket.
void expect_answers(int fd, double seconds);

}  // namespace weft
