// See remote_writes.h.
#include "src/comm/remote_writes.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>

#include "src/base/error.h"
#include "src/comm/windows.h"
#include "src/transport/fifo_ends.h"
#include "src/transport/proxy.h"

namespace weft {
namespace {

constexpr uint64_t kMostRing = 1 << 20, kLeastRing = 32 << 10, kAllRings = 16 << 20;
constexpr uint64_t kCarrierSleepNs = 20'000'000;
constexpr int kCarrierLooks = 50;  // before the thread sleeps
constexpr int kOneSidedChannel = 0;

}  // namespace

RemoteWrites::RemoteWrites(Windows& windows, std::unique_ptr<RemoteMemory> memory)
    : windows_(windows),
      memory_(std::move(memory)),
      peers_(static_cast<size_t>(windows.parts().options.nranks)) {
  connect();
}

RemoteWrites::~RemoteWrites() { stop(); }

void RemoteWrites::stop() {
  stopping_ = true;
  wake_all(door_);
  if (thread_.joinable()) thread_.join();
}

// Every rank takes part in the gathers, whether it has peers on other hosts or not. What fails on
// one rank fails on all.
void RemoteWrites::connect() {
  const WindowParts& parts = windows_.parts();
  std::vector<NetworkLinks::Route> routes;
  for (int peer = 0; peer < parts.options.nranks; peer++)
    if (parts.mesh.link_kind(peer) == LinkKind::kNetwork)
      routes.push_back({peer, kOneSidedChannel});
  constexpr const char* kWhat = "connecting hosts for one-sided calls";
  std::string offer;
  windows_.together(kWhat, [&] {
    if (routes.empty()) return;
    const int rank = parts.options.rank;
    const Secret secret = derive(parts.options.id.secret, "one-sided");
    links_ = std::make_unique<NetworkLinks>(
        open_network(parts.config, parts.options.net, secret, rank), wire_of(parts.config.wire),
        secret, rank, parts.nics, routes, routes);
    offer = links_->offer();
  });
  const auto deadline = in_seconds(parts.config.init_timeout_s);
  const std::vector<std::string> offers =
      parts.control.all_gather(parts.control.reserve(), offer, deadline);
  windows_.together(kWhat, [&] {
    if (links_ == nullptr) return;
    // All ranks have rings of the same size.
    ring_bytes_ = std::clamp(kAllRings / static_cast<uint64_t>(parts.options.nranks) / 64 * 64,
                             kLeastRing, kMostRing);
    NetworkLinks::Ends ends;
    ends.door = &door_;
    ends.gone = parts.context.gone;
    ends.ring_bytes = ring_bytes_;
    ends.send = [&](const NetworkLinks::Route& route, const SendPort& port) {
      Peer& peer = peers_[static_cast<size_t>(route.peer)];
      peer.out = port;
      peer.connected = true;
      memory_->pin(
          reinterpret_cast<std::byte*>(port.control),
          static_cast<size_t>(port.data - reinterpret_cast<std::byte*>(port.control)) + port.size,
          port.stream->memory());
    };
    ends.receive = [&](const NetworkLinks::Route& route, const RecvPort& port) {
      peers_[static_cast<size_t>(route.peer)].in = port;
      memory_->pin(
          reinterpret_cast<std::byte*>(port.control),
          static_cast<size_t>(port.data - reinterpret_cast<std::byte*>(port.control)) + port.size,
          port.stream->memory());
    };
    links_->connect(offers, parts.control, deadline, ends);
  });
  try {
    windows_.together(kWhat, [&] {
      if (links_ != nullptr) {
        thread_ = std::thread([this] { work(); });
        pthread_setname_np(thread_.native_handle(), "weft-puts");
      }
    });
  } catch (...) {
    stop();
    throw;
  }
}

bool RemoteWrites::connects(int peer) const { return peers_[static_cast<size_t>(peer)].connected; }

uint64_t RemoteWrites::sent(int peer) const {
  return __atomic_load_n(memory_->sent() + peer, __ATOMIC_ACQUIRE);
}

uint64_t RemoteWrites::submit(const Request& request) {
  uint64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    Peer& peer = peers_[static_cast<size_t>(request.peer)];
    peer.queue.push_back(request);
    number = ++peer.submitted;
  }
  wake_all(door_);
  return number;
}

// The last message of a request carries the signal.
bool RemoteWrites::send_some(Peer& peer, int rank) {
  const uint64_t most = slot_size(ring_bytes_) / 2 - kFifoAlign;
  bool moved = false;
  for (;;) {
    Request request;
    {
      std::lock_guard lock(mutex_);
      // Whoever waits for a request to a lost peer learns that from the peer's flag.
      if (peer.out.stream->broken()) peer.queue.clear();
      if (peer.queue.empty()) return moved;
      request = peer.queue.front();
    }
    const uint64_t bytes = std::min<uint64_t>(request.bytes - peer.written, most);
    MessageHeader* header = reserve_message(peer.out, bytes);
    if (header == nullptr) return moved;
    const bool last = peer.written + bytes == request.bytes;
    *header = {};
    header->kind = MessageHeader::kInline;
    header->bytes = bytes;
    header->segment = request.window;
    header->address = request.offset + peer.written;
    header->op = last ? 1 : 0;
    if (bytes > 0)
      memory_->read(reinterpret_cast<std::byte*>(header + 1), request.source + peer.written, bytes);
    post_message(peer.out, bytes);
    peer.written += bytes;
    moved = true;
    if (!last) continue;
    peer.written = 0;
    {
      std::lock_guard lock(mutex_);
      peer.queue.pop_front();
    }
    uint64_t* sent = memory_->sent() + rank;
    __atomic_store_n(sent, *sent + 1, __ATOMIC_SEQ_CST);
    memory_->tell();
    changed_.notify_all();
  }
}

bool RemoteWrites::receive_some(Peer& peer, int rank) {
  bool moved = false;
  while (const MessageHeader* header = next_message(peer.in)) {
    if (header->bytes > 0) {
      const Windows::View window = windows_.numbered(header->segment);
      if (header->bytes > window.size || header->address > window.size - header->bytes)
        fail(ncclInvalidUsage,
             "rank {} writes {} bytes at {} of window {}, which rank {} has with {} bytes (0: not "
             "registered)",
             rank, header->bytes, header->address, header->segment, windows_.parts().options.rank,
             window.size);
      memory_->write(window.base + header->address, reinterpret_cast<const std::byte*>(header + 1),
                     header->bytes);
    }
    if (header->op != 0) memory_->signal(rank);
    consume_message(peer.in);
    moved = true;
  }
  return moved;
}

bool RemoteWrites::pass() {
  bool moved = false;
  for (size_t rank = 0; rank < peers_.size(); rank++) {
    if (!peers_[rank].connected) continue;
    moved = receive_some(peers_[rank], static_cast<int>(rank)) || moved;
    moved = send_some(peers_[rank], static_cast<int>(rank)) || moved;
  }
  return moved;
}

void RemoteWrites::work() {
  try {
    memory_->enter();
    for (int looks = 0; !stopping_; looks++) {
      if (pass()) looks = 0;
      if (looks < kCarrierLooks) {
        std::this_thread::yield();
        continue;
      }
      const uint32_t ticket = prepare_sleep(door_);
      if (!pass() && !stopping_) sleep(door_, ticket, kCarrierSleepNs);
    }
  } catch (const Error& error) {
    windows_.parts().give_up(error.code(), error.what());
  } catch (const std::exception& error) {
    windows_.parts().give_up(ncclInternalError, error.what());
  }
}

bool RemoteWrites::is_idle() {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return peer.queue.empty(); });
}

void RemoteWrites::flush(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return is_idle(); });
}

void RemoteWrites::drain(double seconds) {
  if (links_ == nullptr) return;
  flush(seconds);
  stop();
  links_->drain(seconds);
}

}  // namespace weft
