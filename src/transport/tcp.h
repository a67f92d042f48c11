// FIFOs over TCP, for ranks on different hosts: the two ends have a ring each in their own memory,
// and a proxy thread per process copies bytes from ring to socket and from socket to ring.
// Positions on both sides advance alike, so nothing but the ring's bytes travels. (A plain
// transport; network plugins will replace it.)
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "src/base/handles.h"
#include "src/transport/fifo.h"

namespace weft {

// One direction of one connection. Its ring memory lives here.
struct TcpStream {
  TcpStream(Fd connection, uint64_t ring_bytes, bool outgoing, Doorbell& rank_door);

  Fd fd;
  const bool outgoing;
  Mapping ring;  // FifoControl, then the bytes
  const uint64_t ring_bytes;
  Bell rank_bell;
  uint64_t moved = 0;  // proxy thread: bytes ever sent or received
  uint32_t armed = 0;  // proxy thread: epoll events asked for
  std::atomic<bool>* lost =
      nullptr;          // set when the connection ends, for whoever waits for this peer
  bool broken = false;  // proxy thread: closed by the peer, or failed

  FifoControl& control() const { return *reinterpret_cast<FifoControl*>(ring.data()); }
  std::byte* bytes() const { return ring.data() + sizeof(FifoControl); }
};

// Thread-safe; one per process, its thread starts with the first stream.
class TcpProxy {
 public:
  static TcpProxy& instance();

  void add(const std::shared_ptr<TcpStream>& stream);
  // After this the proxy does not touch the stream. Outgoing bytes are sent first, for at most
  // `seconds`.
  void remove(const std::shared_ptr<TcpStream>& stream, double seconds);

  Bell bell() { return {&door_, wake_.get()}; }

  TcpProxy();

 private:
  void loop();
  bool progress(TcpStream& stream);
  void arm(TcpStream& stream, uint32_t events);

  Doorbell door_;
  Fd epoll_, wake_;
  std::mutex mutex_;  // protects streams_ and all TcpStream state against add() and remove()
  std::vector<std::shared_ptr<TcpStream>> streams_;
};

SendPort send_port(const TcpStream& stream, int peer_rank);
RecvPort receive_port(const TcpStream& stream, int peer_rank);

}  // namespace weft
