// What our own plugins offer beyond NCCL's ABI: the data symbol weftNetExtension_v1. Other plugins
// lack it, and everything works without it. Same threads rule as the ABI: one at a time per comm.
#pragma once

#include <poll.h>

#include "src/transport/net_abi/common.h"

namespace weft::net_abi {

struct ExtensionV1 {
  static constexpr const char* kSymbol = "weftNetExtension_v1";

  // The communicator's secret (16 bytes), for listen() and connect() of this thread from now on:
  // peers prove that they know it. nullptr: none, the handle alone lets a peer in.
  void (*use_secret)(const unsigned char* secret);
  // nullptr where messages must lie in registered memory. Like isend() of `head` and then of
  // `body`: two messages, one request, one system call. Nobody reads either after the connection
  // has been closed, whereas a plugin may lend what isend() gets to the peer.
  ncclResult_t (*isend_two)(void* send_comm, void* head, size_t head_size, void* body,
                            size_t body_size, void** request);
  // What a comm waits for now, so that its user can sleep in poll(). The number of descriptors
  // written, at most `most`.
  int (*waits_for)(void* comm, pollfd* descriptors, int most);
  // Why the last call of this thread failed, in words; never nullptr.
  const char* (*last_error)();
};

}  // namespace weft::net_abi
