// See loopback_network.h.
#include "tests/transport/loopback_network.h"

#include <chrono>
#include <stdexcept>
#include <thread>

#include "plugins/net_socket/plugin.h"
#include "src/transport/plugin_network.h"

namespace weft::test {

std::shared_ptr<Network> loopback_network(bool lends) {
  static const auto kPlain = [] {
    auto extension = net_socket::kExtension;
    extension.isend_two = nullptr;
    return extension;
  }();
  // Host memory stands for a GPU's.
  static const auto kAnyMemory = [] {
    auto net = net_socket::kNetV12;
    net.reg_mr = [](void*, void*, size_t, int, void** registration) {
      *registration = nullptr;
      return ncclSuccess;
    };
    return net;
  }();
  return built_in_table(kAnyMemory, lends ? net_socket::kExtension : kPlain)
      .open(1, net_abi::kUndefined);
}

std::pair<NetComm, NetComm> connect_pair(const std::shared_ptr<Network>& network, int device) {
  NetHandle handle{};
  void *listening = nullptr, *sending = nullptr, *receiving = nullptr;
  if (network->listen(device, handle, &listening) != ncclSuccess)
    throw std::runtime_error("listen: " + network->reason());
  const NetComm listener(network, listening, NetComm::Kind::kListen);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (sending == nullptr || receiving == nullptr) {
    if ((sending == nullptr && network->connect(device, handle, &sending) != ncclSuccess) ||
        (receiving == nullptr && network->accept(listening, &receiving) != ncclSuccess))
      throw std::runtime_error("connect: " + network->reason());
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("no connection");
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return {NetComm(network, sending, NetComm::Kind::kSend),
          NetComm(network, receiving, NetComm::Kind::kReceive)};
}

size_t transfer(const NetComm& sender, const NetComm& receiver, void* from, size_t size, void* to,
                size_t room) {
  Network& network = sender.network();
  void *sending = nullptr, *receiving = nullptr;
  if (network.irecv(receiver.get(), to, room, nullptr, &receiving) != ncclSuccess ||
      network.isend(sender.get(), from, size, nullptr, &sending) != ncclSuccess)
    throw std::runtime_error("transfer: " + network.reason());
  bool sent = false, received = false;
  size_t ignored = 0, arrived = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!sent || !received) {
    if ((!sent && network.test(sending, sent, ignored) != ncclSuccess) ||
        (!received && network.test(receiving, received, arrived) != ncclSuccess))
      throw std::runtime_error("transfer: " + network.reason());
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("nothing arrives");
  }
  return arrived;
}

}  // namespace weft::test
