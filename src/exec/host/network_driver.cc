// See network_driver.h.
#include "src/exec/host/network_driver.h"

#include <algorithm>

#include "src/transport/fifo.h"
#include "src/transport/net_stream.h"

namespace weft::host {
namespace {

constexpr uint32_t kIdleDrives = 32;  // after so many idle calls all other streams are driven too
constexpr long kNapNs = 50'000;       // if there is nothing to sleep on

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
  idle_ = moved ? 0 : idle_ + 1;
  if (idle_ % kIdleDrives == kIdleDrives - 1)
    for (Proxy* proxy : proxies_) moved = proxy->drive_all() || moved;
  return moved;
}

void NetworkDriver::sleep(int milliseconds) {
  descriptors_.clear();
  timespec limit{0, milliseconds * 1000000L};
  for (Proxy* proxy : proxies_) {
    if (proxy->drive_all()) return;
    if (!proxy->waits_for(descriptors_)) limit.tv_nsec = kNapNs;
  }
  ppoll(descriptors_.data(), descriptors_.size(), &limit, nullptr);
}

std::string NetworkDriver::failure() const {
  for (NetStream* stream : streams_)
    if (const std::string why = stream->proxy().failure(*stream).text; !why.empty())
      return ": " + why;
  return "";
}

void NetworkDriver::abandon() {
  for (NetStream* stream : streams_) stream->proxy().abandon(*stream);
}

}  // namespace weft::host
