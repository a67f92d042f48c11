// Functions of our own plugins beyond NCCL's ABI: the data symbol weftNetExtension_v4. Other
// plugins lack it, and everything works without it. Same thread rule as the ABI: one at a time per
// comm.
#pragma once

#include <poll.h>

#include "src/transport/net_abi/common.h"

namespace weft::net_abi {

// The least bytes of a message whose pages our socket plugin lends to a peer on the same machine.
inline constexpr size_t kLeastLoan = 192u << 10;

struct ExtensionV4 {
  static constexpr const char* kSymbol = "weftNetExtension_v4";

  // The communicator's secret (16 bytes), for this thread's listen() and connect() from now on.
  // Peers prove that they know it. nullptr: none, the handle alone admits a peer.
  void (*use_secret)(const unsigned char* secret);
  // nullptr if data always travels as it is. How this thread's listen() and connect() protect data
  // from now on: a weft::Wire. -1: as WEFT_WIRE says. Both ends must choose alike.
  void (*use_wire)(int wire);
  // nullptr if messages must lie in registered memory. Like isend() of `head` and then of `body`:
  // two messages, one request, one system call. Nobody reads either after the connection has been
  // closed. (A plugin may lend the memory of an isend() to the peer.)
  ncclResult_t (*isend_two)(void* send_comm, void* head, size_t head_size, void* body,
                            size_t body_size, void** request);
  // Writes the descriptors that a comm waits for now, at most `most`, so that its user can sleep in
  // poll(). Returns their number.
  int (*waits_for)(void* comm, pollfd* descriptors, int most);
  // Why the last call of this thread failed, as text; never nullptr.
  const char* (*last_error)();
  // Gives up a connect() with this handle that has neither failed nor made a comm, if there is one.
  // NCCL's ABI has no way to: what such a connection holds would stay until the process ends.
  void (*cancel)(void* handle);
  // How long a connection's host takes to answer, as the kernel has measured it. 0: it is not
  // known, or the peer is on this machine.
  double (*round_trip_us)(void* comm);
};

}  // namespace weft::net_abi
