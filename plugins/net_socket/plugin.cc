// The functions of the plugin's tables. Nothing here throws: a failure returns a code and logs a
// warning.
#include "plugins/net_socket/plugin.h"

#include <poll.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "plugins/common/abi_tables.h"
#include "plugins/common/connect.h"
#include "plugins/common/errors.h"
#include "plugins/common/secret.h"
#include "plugins/net_socket/receiver.h"
#include "plugins/net_socket/sender.h"
#include "plugins/net_socket/width.h"
#include "src/base/error.h"
#include "src/transport/socket.h"

namespace weft::net_socket {
namespace {

using namespace net_common;

// Connections that are being set up.
struct Listening {
  Listener listener;
  int threads;
};
struct Connecting {
  Connector connector;
  Width width;
};

const Config& config() {
  static const Config value = Config::from_environment();
  return value;
}

// How this thread's connections protect their data. Throws Error if that cannot be.
Wire chosen_wire() {
  config().require_valid();
  const Wire wire = thread_wire() ? *thread_wire() : wire_of(config().wire);
  if (wire == Wire::kEncrypt && !thread_secret())
    fail(ncclInvalidUsage,
         "WEFT_WIRE=encrypt needs a communicator's secret, which only Weft's library gives");
  return wire;
}

const std::vector<Interface>& all_interfaces() {
  static const std::vector<Interface> interfaces = find_interfaces(config());
  return interfaces;
}

bool known(int dev) { return dev >= 0 && static_cast<size_t>(dev) < all_interfaces().size(); }

ncclResult_t start(net_abi::Logger log) {
  logger = log;
  try {
    all_interfaces();
  } catch (const Error& error) {
    return failed(error.code(), "{}", error.what());
  }
  for (const Interface& interface : all_interfaces())
    inform(fmt::format("interface {}, {}, {} Mb/s", interface.name,
                       describe(interface.addresses.front()), interface.speed_mbps));
  return ncclSuccess;
}

int device_count() { return static_cast<int>(all_interfaces().size()); }

ncclResult_t facts(int dev, DeviceFacts& facts) {
  if (!known(dev)) return failed(ncclInvalidArgument, "there is no network device {}", dev);
  const Interface& interface = all_interfaces()[static_cast<size_t>(dev)];
  facts.name = interface.name.c_str();
  if (!interface.pci_path.empty()) facts.pci_path = interface.pci_path.c_str();
  facts.guid = static_cast<uint64_t>(dev);
  facts.speed_mbps = interface.speed_mbps;
  return ncclSuccess;
}

ncclResult_t listen(int dev, void* handle, void** listen_comm) {
  if (!known(dev)) return failed(ncclInvalidArgument, "there is no network device {}", dev);
  try {
    const auto index = static_cast<size_t>(dev);
    const Width width = choose_width(config(), all_interfaces()[index]);
    auto listening = std::make_unique<Listening>(Listening{
        Listener(all_interfaces(), index, thread_secret(), chosen_wire()), width.threads});
    std::memcpy(handle, &listening->listener.handle(), sizeof(Handle));
    *listen_comm = listening.release();
    return ncclSuccess;
  } catch (const std::exception& error) {
    return failed(ncclSystemError, "cannot listen: {}", error.what());
  }
}

ncclResult_t connect(int dev, int, void* handle, void** send_comm) {
  *send_comm = nullptr;
  if (!known(dev)) return failed(ncclInvalidArgument, "there is no network device {}", dev);
  BorrowedHandle at(handle);
  try {
    if (at->state == nullptr) {
      const Width width = choose_width(config(), all_interfaces()[static_cast<size_t>(dev)]);
      at->state =
          std::make_unique<Connecting>(
              Connecting{Connector(*at, width.sockets, thread_secret(), chosen_wire()), width})
              .release();
    }
    auto* connecting = static_cast<Connecting*>(at->state);
    std::optional<Joined> joined = connecting->connector.join();
    if (!joined && !connecting->connector.failed()) return ncclSuccess;
    const std::unique_ptr<Connecting> finished(connecting);
    at->state = nullptr;
    if (!joined) return failed(ncclSystemError, "{}", finished->connector.failure());
    const Width& width = finished->width;
    auto sender =
        std::make_unique<Sender>(std::move(joined->sockets), width.threads, std::move(joined->peer),
                                 width.lends, width.fixed, joined->seals);
    *send_comm = static_cast<SocketSet*>(sender.release());
    return ncclSuccess;
  } catch (const std::exception& error) {
    return failed(ncclSystemError, "cannot connect: {}", error.what());
  }
}

void cancel(void* handle) {
  BorrowedHandle at(handle);
  const std::unique_ptr<Connecting> gone(
      static_cast<Connecting*>(std::exchange(at->state, nullptr)));
}

ncclResult_t accept(void* listen_comm, void** recv_comm) {
  try {
    *recv_comm = nullptr;
    auto& listening = *static_cast<Listening*>(listen_comm);
    std::optional<Joined> joined = listening.listener.join();
    if (!joined) return ncclSuccess;
    auto receiver = std::make_unique<Receiver>(std::move(joined->sockets), listening.threads,
                                               std::move(joined->peer), joined->seals);
    *recv_comm = static_cast<SocketSet*>(receiver.release());
    return ncclSuccess;
  } catch (const std::exception& error) {
    return failed(ncclSystemError, "cannot accept: {}", error.what());
  }
}

// No registration is needed. Sockets cannot access GPU memory.
ncclResult_t reg_mr(void*, void*, size_t, int type, void** mr) {
  *mr = nullptr;
  return type == net_abi::kHostPointer
             ? ncclSuccess
             : failed(ncclInvalidArgument, "sockets reach host memory only");
}
ncclResult_t reg_mr_dma_buf(void*, void*, size_t, int, uint64_t, int, void**) {
  return failed(ncclInvalidUsage, "sockets reach host memory only");
}
ncclResult_t dereg_mr(void*, void*) { return ncclSuccess; }

// A comm pointer is a SocketSet*.
Sender& sender_of(void* comm) { return *static_cast<Sender*>(static_cast<SocketSet*>(comm)); }
Receiver& receiver_of(void* comm) { return *static_cast<Receiver*>(static_cast<SocketSet*>(comm)); }

ncclResult_t broken(const SocketSet& sockets) {
  if (sockets.error() == EBADMSG)
    return failed(ncclSystemError, "data from {} was changed on the way (WEFT_WIRE finds that)",
                  sockets.peer());
  return failed(ncclRemoteError, "the connection with {} broke: {}", sockets.peer(),
                sockets.error() == 0 ? "the peer closed it" : std::strerror(sockets.error()));
}

// A request pointer carries its kind in the lowest bit: requests are aligned.
constexpr uintptr_t kReceiveBit = 1;

ncclResult_t isend_two(void* send_comm, void* head, size_t head_size, void* body, size_t body_size,
                       void** request) {
  Sender& sender = sender_of(send_comm);
  *request = nullptr;
  if (sender.broken()) return broken(sender);
  *request = sender.start(head, head_size, body, body_size);
  return sender.broken() ? broken(sender) : ncclSuccess;
}
ncclResult_t isend(void* comm, void* data, size_t size, void*, void** request) {
  return isend_two(comm, nullptr, 0, data, size, request);
}

ncclResult_t irecv(void* recv_comm, int n, void* data, size_t size, void*, void** request) {
  Receiver& receiver = receiver_of(recv_comm);
  *request = nullptr;
  if (n != 1) return failed(ncclInvalidArgument, "{} receives at once: sockets take one", n);
  if (receiver.broken()) return broken(receiver);
  Receiver::Request* started = receiver.start(data, size);
  if (started != nullptr)
    *request = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(started) | kReceiveBit);
  return ncclSuccess;
}
ncclResult_t iflush(void*, int, void**, int*, void**, void** request) {
  *request = nullptr;  // nothing to flush in host memory
  return ncclSuccess;
}

ncclResult_t test(void* request, int* done, int* sizes) {
  const auto bits = reinterpret_cast<uintptr_t>(request);
  *done = 0;
  if ((bits & kReceiveBit) == 0) {
    auto& send = *static_cast<Sender::Request*>(request);
    if (send.sender->complete(send)) {
      *done = 1;
      if (sizes != nullptr) *sizes = static_cast<int>(send.frame.size);
    } else if (send.sender->broken()) {
      return broken(*send.sender);
    }
    return ncclSuccess;
  }
  auto& receive = *reinterpret_cast<Receiver::Request*>(bits & ~kReceiveBit);
  Receiver& receiver = *receive.receiver;
  if (receiver.complete(receive)) {
    *done = 1;
    if (sizes != nullptr) *sizes = static_cast<int>(receive.size);
  } else if (receiver.broken()) {
    if (receiver.complaint().empty()) return broken(receiver);
    return failed(ncclInternalError, "from {}: {}", receiver.peer(), receiver.complaint());
  }
  return ncclSuccess;
}

ncclResult_t close_comm(void* comm) {
  const std::unique_ptr<SocketSet> closed(static_cast<SocketSet*>(comm));
  return ncclSuccess;
}
ncclResult_t close_listen(void* comm) {
  const std::unique_ptr<Listening> closed(static_cast<Listening*>(comm));
  return ncclSuccess;
}

int waits_for(void* comm, pollfd* descriptors, int most) {
  return static_cast<SocketSet*>(comm)->waits_for(descriptors, most);
}

double round_trip(void* comm) {
  return round_trip_us(static_cast<SocketSet*>(comm)->descriptor(0));
}

// See abi_tables.h.
struct SocketPlugin {
  static constexpr const char* kName = "weft-socket";
  static constexpr auto start = net_socket::start;
  static constexpr auto device_count = net_socket::device_count;
  static constexpr auto facts = net_socket::facts;
  static constexpr auto listen = net_socket::listen;
  static constexpr auto connect = net_socket::connect;
  static constexpr auto accept = net_socket::accept;
  static constexpr auto reg_mr = net_socket::reg_mr;
  static constexpr auto reg_mr_dma_buf = net_socket::reg_mr_dma_buf;
  static constexpr auto dereg_mr = net_socket::dereg_mr;
  static constexpr auto isend = net_socket::isend;
  static constexpr auto irecv = net_socket::irecv;
  static constexpr auto iflush = net_socket::iflush;
  static constexpr auto test = net_socket::test;
  static constexpr auto close_send = net_socket::close_comm;
  static constexpr auto close_recv = net_socket::close_comm;
  static constexpr auto close_listen = net_socket::close_listen;
};

}  // namespace

const net_abi::NetV8 kNetV8 = AbiTables<SocketPlugin>::kV8;
const net_abi::NetV9 kNetV9 = AbiTables<SocketPlugin>::kV9;
const net_abi::NetV10 kNetV10 = AbiTables<SocketPlugin>::kV10;
const net_abi::NetV11 kNetV11 = AbiTables<SocketPlugin>::kV11;
const net_abi::NetV12 kNetV12 = AbiTables<SocketPlugin>::kV12;
const net_abi::ExtensionV4 kExtension = {use_secret, use_wire, isend_two, waits_for,
                                         last_error, cancel,   round_trip};

}  // namespace weft::net_socket
