// The functions of the plugin's tables. Nothing here throws: a failure returns a code and logs a
// warning.
#include "plugins/net_verbs/plugin.h"

#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "plugins/common/abi_tables.h"
#include "plugins/common/connect.h"
#include "plugins/common/errors.h"
#include "plugins/common/secret.h"
#include "plugins/net_verbs/devices.h"
#include "plugins/net_verbs/receiver.h"
#include "plugins/net_verbs/sender.h"

namespace weft::net_verbs {
namespace {

using net_common::failed;
using net_common::thread_secret;
using net_common::use_secret;

// Connections that are being set up: first sockets, then queue pairs.
struct Listening {
  const Device* device;
  net_common::Listener listener;
  std::vector<std::unique_ptr<Receiver>> arriving;
};
struct Connecting {
  const Device* device;
  ConnectionSettings settings;
  net_common::Connector connector;
  std::unique_ptr<Sender> sender;
};

ncclResult_t listen(int dev, void* handle, void** listen_comm) {
  const Device* device = find_device(dev);
  if (device == nullptr) return ncclInvalidArgument;
  try {
    const auto interfaces = net_common::find_interfaces(config());
    auto listening = std::make_unique<Listening>(
        Listening{device, net_common::Listener(interfaces, 0, thread_secret()), {}});
    std::memcpy(handle, &listening->listener.handle(), sizeof(net_common::Handle));
    *listen_comm = listening.release();
    return ncclSuccess;
  } catch (const std::exception& error) {
    return failed(ncclSystemError, "cannot listen: {}", error.what());
  }
}

// One more step. `finished`: the state is no longer needed.
ncclResult_t advance(Connecting& connecting, void** send_comm, bool& finished) {
  if (connecting.sender == nullptr) {
    auto joined = connecting.connector.join();
    finished = connecting.connector.failed();
    if (finished) return failed(ncclSystemError, "{}", connecting.connector.failure());
    if (!joined) return ncclSuccess;
    connecting.sender =
        std::make_unique<Sender>(std::move(joined->sockets.front()), std::move(joined->peer),
                                 rails_for(*connecting.device), connecting.settings);
  }
  connecting.sender->progress();
  finished = connecting.sender->is_up() || connecting.sender->broken();
  if (connecting.sender->broken())
    return failed(connecting.sender->code(), "{}", connecting.sender->failure());
  if (finished) *send_comm = static_cast<Connection*>(connecting.sender.release());
  return ncclSuccess;
}

ncclResult_t connect(int dev, int traffic_class, void* handle, void** send_comm) {
  *send_comm = nullptr;
  const Device* device = find_device(dev);
  if (device == nullptr) return ncclInvalidArgument;
  net_common::BorrowedHandle at(handle);
  try {
    if (at->state == nullptr)
      at->state = std::make_unique<Connecting>(
                      Connecting{device, connection_settings(config(), traffic_class),
                                 net_common::Connector(*at, 1, thread_secret()), nullptr})
                      .release();
    std::unique_ptr<Connecting> connecting(static_cast<Connecting*>(at->state));
    at->state = nullptr;
    bool finished = false;
    const ncclResult_t code = advance(*connecting, send_comm, finished);
    if (!finished) at->state = connecting.release();
    return code;
  } catch (const std::exception& error) {
    return failed(ncclSystemError, "cannot connect: {}", error.what());
  }
}

void cancel(void* handle) {
  net_common::BorrowedHandle at(handle);
  const std::unique_ptr<Connecting> gone(
      static_cast<Connecting*>(std::exchange(at->state, nullptr)));
}

ncclResult_t accept(void* listen_comm, void** recv_comm) {
  *recv_comm = nullptr;
  auto& listening = *static_cast<Listening*>(listen_comm);
  try {
    while (auto joined = listening.listener.join())
      listening.arriving.push_back(std::make_unique<Receiver>(
          std::move(joined->sockets.front()), std::move(joined->peer), rails_for(*listening.device),
          connection_settings(config(), net_abi::kUndefined)));
    for (auto it = listening.arriving.begin(); it != listening.arriving.end(); ++it) {
      (*it)->progress();
      if (!(*it)->is_up() && !(*it)->broken()) continue;
      const std::unique_ptr<Receiver> broken((*it)->broken() ? it->release() : nullptr);
      if (broken == nullptr) *recv_comm = static_cast<Connection*>(it->release());
      listening.arriving.erase(it);
      return broken == nullptr ? ncclSuccess : failed(broken->code(), "{}", broken->failure());
    }
    return ncclSuccess;
  } catch (const std::exception& error) {
    return failed(ncclSystemError, "cannot accept: {}", error.what());
  }
}

// A comm pointer is a Connection*.
Connection& connection_of(void* comm) { return *static_cast<Connection*>(comm); }

template <typename... Args>
ncclResult_t register_memory(void** mr, Args&&... args) {
  try {
    *mr = std::make_unique<Registration>(std::forward<Args>(args)...).release();
    return ncclSuccess;
  } catch (const Error& error) {
    return failed(error.code(), "{}", error.what());
  } catch (const std::exception& error) {
    return failed(ncclSystemError, "cannot register memory: {}", error.what());
  }
}
ncclResult_t reg_mr(void* comm, void* data, size_t size, int type, void** mr) {
  return register_memory(mr, connection_of(comm).rails(), data, size, type == net_abi::kCudaPointer,
                         config().ib_relaxed_ordering);
}
ncclResult_t reg_mr_dma_buf(void* comm, void* data, size_t size, int, uint64_t offset, int fd,
                            void** mr) {
  return register_memory(mr, connection_of(comm).rails(), data, size, offset, fd,
                         config().ib_relaxed_ordering);
}
ncclResult_t dereg_mr(void*, void* mr) {
  const std::unique_ptr<Registration> gone(static_cast<Registration*>(mr));
  return ncclSuccess;
}

ncclResult_t broken(const Connection& connection) {
  return failed(connection.code(), "{}", connection.failure());
}

ncclResult_t unregistered(const void* data, size_t size) {
  return failed(ncclInvalidArgument, "{} bytes at {} are not registered", size, fmt::ptr(data));
}

// A request pointer carries its kind in its lowest bits: requests are aligned.
constexpr uintptr_t kReceiveBit = 1, kFlushBit = 2;

ncclResult_t isend(void* comm, void* data, size_t size, void* mr, void** request) {
  auto& sender = static_cast<Sender&>(connection_of(comm));
  *request = nullptr;
  if (sender.broken()) return broken(sender);
  if (mr == nullptr && size > 0) return unregistered(data, size);
  *request = sender.start(data, size, static_cast<Registration*>(mr));
  return ncclSuccess;
}

ncclResult_t irecv(void* comm, int n, void* data, size_t size, void* mr, void** request) {
  auto& receiver = static_cast<Receiver&>(connection_of(comm));
  *request = nullptr;
  if (n != 1) return failed(ncclInvalidArgument, "{} receives at once: this plugin takes one", n);
  if (receiver.broken()) return broken(receiver);
  if (mr == nullptr && size > 0) return unregistered(data, size);
  Receiver::Request* started = receiver.start(data, size, static_cast<Registration*>(mr));
  if (started != nullptr)
    *request = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(started) | kReceiveBit);
  return ncclSuccess;
}

ncclResult_t iflush(void* comm, int n, void** data, int* sizes, void** mrs, void** request) {
  *request = nullptr;
  if (n != 1) return failed(ncclInvalidArgument, "{} flushes at once: this plugin takes one", n);
  const auto* registration = static_cast<Registration*>(mrs[0]);
  // Host memory is coherent.
  if (registration == nullptr || !registration->is_cuda() || sizes[0] == 0) return ncclSuccess;
  try {
    auto& receiver = static_cast<Receiver&>(connection_of(comm));
    Flush::Request* started =
        receiver.flush().start(data[0], *registration, receiver.rails_in_use());
    if (started != nullptr)
      *request = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(started) | kFlushBit);
    // Without a request NCCL would assume the flush is done.
    return started != nullptr ? ncclSuccess
                              : failed(ncclInternalError, "too many flushes are in flight");
  } catch (const std::exception& error) {
    return failed(ncclSystemError, "{}", error.what());
  }
}

ncclResult_t test_flush(Flush::Request& request, int* done) {
  try {
    *done = request.flush->complete(request) ? 1 : 0;
    return ncclSuccess;
  } catch (const std::exception& error) {
    return failed(ncclSystemError, "{}", error.what());
  }
}

ncclResult_t test(void* request, int* done, int* sizes) {
  const auto bits = reinterpret_cast<uintptr_t>(request);
  *done = 0;
  if ((bits & kFlushBit) != 0)
    return test_flush(*reinterpret_cast<Flush::Request*>(bits & ~kFlushBit), done);
  if ((bits & kReceiveBit) == 0) {
    auto& send = *static_cast<Sender::Request*>(request);
    *done = send.sender->complete(send) ? 1 : 0;
    if (*done != 0 && sizes != nullptr) *sizes = static_cast<int>(send.size);
    return *done == 0 && send.sender->broken() ? broken(*send.sender) : ncclSuccess;
  }
  auto& receive = *reinterpret_cast<Receiver::Request*>(bits & ~kReceiveBit);
  *done = receive.receiver->complete(receive) ? 1 : 0;
  if (*done != 0 && sizes != nullptr) *sizes = static_cast<int>(receive.size);
  return *done == 0 && receive.receiver->broken() ? broken(*receive.receiver) : ncclSuccess;
}

ncclResult_t close_comm(void* comm) {
  const std::unique_ptr<Connection> closed(static_cast<Connection*>(comm));
  return ncclSuccess;
}
ncclResult_t close_listen(void* comm) {
  const std::unique_ptr<Listening> closed(static_cast<Listening*>(comm));
  return ncclSuccess;
}

int waits_for(void* comm, pollfd* descriptors, int most) {
  return connection_of(comm).waits_for(descriptors, most);
}

// Not known: the socket beside the queue pairs may be of a slower network.
double round_trip(void*) { return 0; }

// See abi_tables.h.
struct VerbsPlugin {
  static constexpr const char* kName = "weft-verbs";
  static constexpr auto start = net_verbs::start;
  static constexpr auto device_count = net_verbs::device_count;
  static constexpr auto facts = net_verbs::facts;
  static constexpr auto merge = net_verbs::merge;
  static constexpr auto listen = net_verbs::listen;
  static constexpr auto connect = net_verbs::connect;
  static constexpr auto accept = net_verbs::accept;
  static constexpr auto reg_mr = net_verbs::reg_mr;
  static constexpr auto reg_mr_dma_buf = net_verbs::reg_mr_dma_buf;
  static constexpr auto dereg_mr = net_verbs::dereg_mr;
  static constexpr auto isend = net_verbs::isend;
  static constexpr auto irecv = net_verbs::irecv;
  static constexpr auto iflush = net_verbs::iflush;
  static constexpr auto test = net_verbs::test;
  static constexpr auto close_send = net_verbs::close_comm;
  static constexpr auto close_recv = net_verbs::close_comm;
  static constexpr auto close_listen = net_verbs::close_listen;
};

}  // namespace

const net_abi::NetV8 kNetV8 = AbiTables<VerbsPlugin>::kV8;
const net_abi::NetV9 kNetV9 = AbiTables<VerbsPlugin>::kV9;
const net_abi::NetV10 kNetV10 = AbiTables<VerbsPlugin>::kV10;
const net_abi::NetV11 kNetV11 = AbiTables<VerbsPlugin>::kV11;
const net_abi::NetV12 kNetV12 = AbiTables<VerbsPlugin>::kV12;
const net_abi::ExtensionV4 kExtension = {
    use_secret, nullptr, nullptr, waits_for, net_common::last_error, cancel, round_trip};

}  // namespace weft::net_verbs
