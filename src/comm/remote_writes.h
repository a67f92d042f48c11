// One-sided writes and signals between ranks of different hosts. They go through streams of their
// own (network_links.h), which proxies serve. A thread of every rank writes into its windows what
// other ranks send, so that these ranks need no call of this one.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "src/comm/network_links.h"
#include "src/exec/remote_memory.h"
#include "src/transport/fifo.h"

namespace weft {

class Windows;

// submit() and sent(): any thread. Requests to one peer stay in order.
class RemoteWrites {
 public:
  // Collective: connects to all ranks of other hosts. Throws Error.
  RemoteWrites(Windows& windows, std::unique_ptr<RemoteMemory> memory);
  ~RemoteWrites();
  RemoteWrites(const RemoteWrites&) = delete;
  RemoteWrites& operator=(const RemoteWrites&) = delete;

  bool connects(int peer) const;
  // Writes `bytes` bytes into a window of the peer, then signals it.
  struct Request {
    int peer = 0;
    uint64_t window = 0, offset = 0;
    const std::byte* source = nullptr;
    size_t bytes = 0;
  };
  // Returns the number of the request among those to the peer.
  uint64_t submit(const Request& request);
  // How many requests to a peer no longer need their source.
  uint64_t sent(int peer) const;
  RemoteMemory& memory() { return *memory_; }

  // Waits at most `seconds` until no request needs its source.
  void flush(double seconds);
  // The same, and until all requests have left this host. Then nothing is received any more.
  void drain(double seconds);

 private:
  struct Peer {
    SendPort out;
    RecvPort in;
    bool connected = false;
    uint64_t submitted = 0;
    std::deque<Request> queue;
    size_t written = 0;  // bytes of the first request
  };
  void connect();
  void stop();
  void work();
  bool pass();
  bool send_some(Peer& peer, int rank);
  bool receive_some(Peer& peer, int rank);
  bool is_idle();

  Windows& windows_;
  const std::unique_ptr<RemoteMemory> memory_;
  Doorbell door_;
  uint64_t ring_bytes_ = 0;
  std::vector<Peer> peers_;
  std::mutex mutex_;  // protects submitted and queue of all peers
  std::condition_variable changed_;
  std::atomic<bool> stopping_{false};
  std::unique_ptr<NetworkLinks> links_;
  std::thread thread_;
};

}  // namespace weft
