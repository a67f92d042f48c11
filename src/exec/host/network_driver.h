// What a thread that drives lanes does for the network meanwhile: it moves the streams of its own
// operations itself, sleeps on their sockets, and leaves what remains to the proxy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/transport/proxy.h"

namespace weft {
struct SendPort;
struct RecvPort;
}  // namespace weft

namespace weft::host {

// One thread; part of a Batch.
class NetworkDriver {
 public:
  void clear();
  void add(const std::vector<SendPort*>& sends, const std::vector<RecvPort*>& receives);

  bool any() const { return !streams_.empty(); }
  // Everything the operations wait for comes through the network.
  bool all() const { return any() && !memory_; }

  void enter();
  // waiting: the proxy must go on at once, this thread only sleeps.
  void leave(bool waiting);
  // Moves the operations' streams; from time to time, when nothing moves, all others too.
  bool drive(bool eager);
  // Until something can be moved, or the time is over; works where all() does.
  void sleep(int milliseconds);
  // ": why" of the first connection that broke; empty: none did, or nobody knows why.
  std::string failure() const;
  // After a failure: nobody may touch the operations' memory any more.
  void abandon();

 private:
  std::vector<NetStream*> streams_;
  std::vector<Proxy*> proxies_;
  std::vector<pollfd> descriptors_;
  uint32_t idle_ = 0;
  bool memory_ = false;  // some port is not the network's
};

}  // namespace weft::host
