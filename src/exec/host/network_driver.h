// The network part of a thread that drives lanes. The thread moves the streams of its own
// operations, sleeps on their sockets, and leaves the remaining work to the proxy.
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

// One thread at a time; part of a Batch.
class NetworkDriver {
 public:
  void clear();
  void add(const std::vector<SendPort*>& sends, const std::vector<RecvPort*>& receives);

  bool any() const { return !streams_.empty(); }
  // True if all data that the operations wait for comes through the network.
  bool all() const { return any() && !memory_; }

  void enter();
  // waiting: this thread only sleeps, and the proxy must continue at once.
  void leave(bool waiting);
  // Moves the operations' streams. When nothing moves, it moves all other streams from time to
  // time.
  bool drive(bool eager);
  // Sleeps until something can be moved, or the time is over. Requires all().
  void sleep(int milliseconds);
  // ": why" of the first connection that broke; empty if none did, or if the reason is unknown.
  std::string failure() const;
  // After a failure: nobody may access the operations' memory any more.
  void abandon();

 private:
  std::vector<NetStream*> streams_;
  std::vector<Proxy*> proxies_;
  std::vector<pollfd> descriptors_;
  uint32_t idle_ = 0;
  bool memory_ = false;  // some port does not use the network
};

}  // namespace weft::host
