// See network_driver.h.
#include "src/exec/host/network_driver.h"

#include <algorithm>

#include "src/transport/fifo.h"
#include "src/transport/net_stream.h"

namespace weft::host {
namespace {

constexpr int kMostDescriptors = 4;  // of one stream

template <typename T>
void add_once(std::vector<T*>& list, T* item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}

}  // namespace

void NetworkDriver::clear() {
  streams_.clear();
  proxies_.clear();
  memory_ = false;
}

void NetworkDriver::add(const std::vector<SendPort*>& sends,
                        const std::vector<RecvPort*>& receives) {
  const auto use = [&](NetStream* stream) {
    if (stream == nullptr) {
      memory_ = true;
      return;
    }
    add_once(streams_, stream);
    add_once(proxies_, &stream->proxy());
  };
  for (const SendPort* port : sends) use(port->stream);
  for (const RecvPort* port : receives) use(port->stream);
}

void NetworkDriver::enter() {
  for (Proxy* proxy : proxies_) proxy->enter();
}

void NetworkDriver::leave(bool waiting) {
  bool unfinished = waiting;
  for (NetStream* stream : streams_) unfinished = stream->proxy().unsent(*stream) || unfinished;
  for (Proxy* proxy : proxies_) proxy->leave(unfinished);
}

bool NetworkDriver::drive(bool eager) {
  bool moved = false;
  for (NetStream* stream : streams_) moved = stream->proxy().drive(*stream, eager) || moved;
  return moved;
}

void NetworkDriver::sleep(int milliseconds) {
  descriptors_.clear();
  for (NetStream* stream : streams_) {
    pollfd waits[kMostDescriptors];
    const int count = stream->proxy().waits_for(*stream, waits, kMostDescriptors);
    descriptors_.insert(descriptors_.end(), waits, waits + count);
    if (!stream->can_sleep()) milliseconds = 0;
  }
  poll(descriptors_.data(), descriptors_.size(), milliseconds);
}

void NetworkDriver::abandon() {
  for (NetStream* stream : streams_) stream->proxy().abandon(*stream);
}

}  // namespace weft::host
