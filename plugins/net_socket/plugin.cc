// The functions of the plugin's tables. Nothing here throws: what fails is a code and a warning.
#include "plugins/net_socket/plugin.h"

#include <poll.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "plugins/net_socket/connect.h"
#include "plugins/net_socket/errors.h"
#include "src/base/error.h"

namespace weft::net_socket {
namespace {

using net_abi::DeviceHandle;

thread_local std::optional<Secret> thread_secret;

const Config& config() {
  static const Config value = Config::from_environment();
  return value;
}

const std::vector<Device>& all_devices() {
  static const std::vector<Device> devices = find_devices(config());
  return devices;
}

bool known(int dev) { return dev >= 0 && static_cast<size_t>(dev) < all_devices().size(); }

ncclResult_t start(net_abi::Logger log) {
  logger = log;
  for (const Device& device : all_devices())
    inform(fmt::format("interface {}, {}, {} Mb/s", device.interface,
                       describe(device.addresses.front()), device.speed_mbps));
  return ncclSuccess;
}

ncclResult_t init_v8(net_abi::Logger log) { return start(log); }
ncclResult_t init_v10(net_abi::Logger log, net_abi::ProfilerCallback) { return start(log); }
ncclResult_t init_v11(void** context, uint64_t, net_abi::CommConfig*, net_abi::Logger log,
                      net_abi::ProfilerCallback) {
  *context = nullptr;
  return start(log);
}
ncclResult_t finalize(void*) { return ncclSuccess; }
ncclResult_t set_attributes(void*, net_abi::NetAttributes*) { return ncclSuccess; }

ncclResult_t devices(int* ndev) {
  *ndev = static_cast<int>(all_devices().size());
  return ncclSuccess;
}

template <typename Properties>
ncclResult_t get_properties(int dev, Properties* properties) {
  if (!known(dev)) return failed(ncclInvalidArgument, "there is no network device {}", dev);
  const Device& device = all_devices()[static_cast<size_t>(dev)];
  *properties = {};
  properties->name = const_cast<char*>(device.interface.c_str());
  properties->pci_path =
      device.pci_path.empty() ? nullptr : const_cast<char*>(device.pci_path.c_str());
  properties->guid = static_cast<uint64_t>(dev);
  properties->pointer_support = net_abi::kHostPointer;
  properties->speed = device.speed_mbps;
  properties->max_comms = 65536;
  properties->max_receives = 1;
  properties->device_type = net_abi::kDeviceHost;
  if constexpr (requires { properties->max_p2p_bytes; }) {
    properties->virtual_device.ndevs = 1;
    properties->virtual_device.devs[0] = dev;
    properties->max_p2p_bytes = net_abi::kLargestSize;
    properties->max_coll_bytes = net_abi::kLargestSize;
  }
  if constexpr (requires { properties->max_multi_request; }) properties->max_multi_request = 1;
  if constexpr (requires { properties->rail; }) {
    properties->rail = net_abi::kUndefined;
    properties->plane = net_abi::kUndefined;
  }
  return ncclSuccess;
}

ncclResult_t listen(int dev, void* handle, void** listen_comm) {
  if (!known(dev)) return failed(ncclInvalidArgument, "there is no network device {}", dev);
  try {
    const auto index = static_cast<size_t>(dev);
    auto listener = std::make_unique<Listener>(
        all_devices(), index, choose_width(config(), all_devices()[index]), thread_secret);
    std::memcpy(handle, &listener->handle(), sizeof(Handle));
    *listen_comm = listener.release();
    return ncclSuccess;
  } catch (const std::exception& error) {
    return failed(ncclSystemError, "cannot listen: {}", error.what());
  }
}

ncclResult_t connect(int dev, void* handle, void** send_comm, DeviceHandle**) {
  *send_comm = nullptr;
  if (!known(dev)) return failed(ncclInvalidArgument, "there is no network device {}", dev);
  Handle& at = *static_cast<Handle*>(handle);
  try {
    if (at.state == nullptr) {
      const Device& device = all_devices()[static_cast<size_t>(dev)];
      at.state =
          std::make_unique<Connector>(at, device, choose_width(config(), device), thread_secret)
              .release();
    }
    auto* connector = static_cast<Connector*>(at.state);
    std::unique_ptr<Sender> sender = connector->advance();
    if (sender == nullptr && !connector->failed()) return ncclSuccess;
    const std::unique_ptr<Connector> finished(connector);
    at.state = nullptr;
    if (sender == nullptr) return failed(ncclSystemError, "{}", finished->failure());
    *send_comm = static_cast<SocketSet*>(sender.release());
    return ncclSuccess;
  } catch (const std::exception& error) {
    return failed(ncclSystemError, "cannot connect: {}", error.what());
  }
}

ncclResult_t accept(void* listen_comm, void** recv_comm, DeviceHandle**) {
  try {
    SocketSet* receiver = static_cast<Listener*>(listen_comm)->accept().release();
    *recv_comm = receiver;
    return ncclSuccess;
  } catch (const std::exception& error) {
    return failed(ncclSystemError, "cannot accept: {}", error.what());
  }
}

ncclResult_t listen_in(void*, int dev, void* handle, void** comm) {
  return listen(dev, handle, comm);
}
ncclResult_t connect_in(void*, int dev, void* handle, void** comm, DeviceHandle** device) {
  return connect(dev, handle, comm, device);
}
ncclResult_t connect_v10(int dev, net_abi::CommConfig*, void* handle, void** comm,
                         DeviceHandle** device) {
  return connect(dev, handle, comm, device);
}

// Sockets copy, so nothing needs to be registered; GPU memory they cannot reach.
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

// Comms are SocketSets to the outside.
Sender& sender_of(void* comm) { return *static_cast<Sender*>(static_cast<SocketSet*>(comm)); }
Receiver& receiver_of(void* comm) { return *static_cast<Receiver*>(static_cast<SocketSet*>(comm)); }

ncclResult_t broken(const SocketSet& sockets) {
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
ncclResult_t isend_v8(void* comm, void* data, int size, int, void*, void** request) {
  return isend_two(comm, nullptr, 0, data, static_cast<size_t>(size), request);
}
ncclResult_t isend_v9(void* comm, void* data, size_t size, int, void*, void** request) {
  return isend_two(comm, nullptr, 0, data, size, request);
}
ncclResult_t isend_v10(void* comm, void* data, size_t size, int, void*, void*, void** request) {
  return isend_two(comm, nullptr, 0, data, size, request);
}

ncclResult_t irecv(void* recv_comm, int n, void* data, size_t size, void** request) {
  Receiver& receiver = receiver_of(recv_comm);
  *request = nullptr;
  if (n != 1) return failed(ncclInvalidArgument, "{} receives at once: sockets take one", n);
  if (receiver.broken()) return broken(receiver);
  Receiver::Request* started = receiver.start(data, size);
  if (started != nullptr)
    *request = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(started) | kReceiveBit);
  return ncclSuccess;
}
ncclResult_t irecv_v8(void* comm, int n, void** data, int* sizes, int*, void**, void** request) {
  return irecv(comm, n, data[0], static_cast<size_t>(sizes[0]), request);
}
ncclResult_t irecv_v9(void* comm, int n, void** data, size_t* sizes, int*, void**, void** request) {
  return irecv(comm, n, data[0], sizes[0], request);
}
ncclResult_t irecv_v10(void* comm, int n, void** data, size_t* sizes, int*, void**, void**,
                       void** request) {
  return irecv(comm, n, data[0], sizes[0], request);
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
  const std::unique_ptr<Listener> closed(static_cast<Listener*>(comm));
  return ncclSuccess;
}

void use_secret(const unsigned char* secret) {
  thread_secret.reset();
  if (secret == nullptr) return;
  thread_secret.emplace();
  std::memcpy(thread_secret->data(), secret, thread_secret->size());
}

int waits_for(void* comm, pollfd* descriptors, int most) {
  return static_cast<SocketSet*>(comm)->waits_for(descriptors, most);
}

constexpr const char* kName = "weft-socket";

}  // namespace

const net_abi::NetV8 kNetV8 = {
    kName,          init_v8,  devices,    get_properties<net_abi::PropertiesV8>,
    listen,         connect,  accept,     reg_mr,
    reg_mr_dma_buf, dereg_mr, isend_v8,   irecv_v8,
    iflush,         test,     close_comm, close_comm,
    close_listen,   nullptr,  nullptr};
const net_abi::NetV9 kNetV9 = {
    kName,          init_v8,  devices,    get_properties<net_abi::PropertiesV9>,
    listen,         connect,  accept,     reg_mr,
    reg_mr_dma_buf, dereg_mr, isend_v9,   irecv_v9,
    iflush,         test,     close_comm, close_comm,
    close_listen,   nullptr,  nullptr,    nullptr};
const net_abi::NetV10 kNetV10 = {
    kName,          init_v10,    devices,    get_properties<net_abi::PropertiesV10>,
    listen,         connect_v10, accept,     reg_mr,
    reg_mr_dma_buf, dereg_mr,    isend_v10,  irecv_v10,
    iflush,         test,        close_comm, close_comm,
    close_listen,   nullptr,     nullptr,    nullptr};
const net_abi::NetV11 kNetV11 = {
    {kName,          init_v11,      devices,    get_properties<net_abi::PropertiesV11>,
     listen_in,      connect_in,    accept,     reg_mr,
     reg_mr_dma_buf, dereg_mr,      isend_v10,  irecv_v10,
     iflush,         test,          close_comm, close_comm,
     close_listen,   nullptr,       nullptr,    nullptr,
     finalize,       set_attributes}};
const net_abi::NetV12 kNetV12 = {
    {kName,          init_v11,      devices,    get_properties<net_abi::PropertiesV12>,
     listen_in,      connect_in,    accept,     reg_mr,
     reg_mr_dma_buf, dereg_mr,      isend_v10,  irecv_v10,
     iflush,         test,          close_comm, close_comm,
     close_listen,   nullptr,       nullptr,    nullptr,
     finalize,       set_attributes}};
const net_abi::ExtensionV1 kExtension = {use_secret, isend_two, waits_for, last_error};

}  // namespace weft::net_socket
