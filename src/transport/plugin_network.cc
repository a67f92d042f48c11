// One adapter per version of the ABI: PluginNetwork<NetV8> to PluginNetwork<NetV12>. The few
// functions that differ between versions choose at compile time.
#include "src/transport/plugin_network.h"

#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/transport/net_abi/v10.h"
#include "src/transport/net_abi/v12.h"
#include "src/transport/net_abi/v8.h"

namespace weft {
namespace {

using net_abi::DeviceHandle;
using net_abi::ExtensionV4;

std::string& last_warning() {
  thread_local std::string text;
  return text;
}

ncclResult_t no_profiler(void** event, int, void*, int64_t, void*) {
  if (event != nullptr) *event = nullptr;
  return ncclSuccess;
}

template <typename Function>
struct ArgumentsOf;
template <typename Result, typename First, typename Second>
struct ArgumentsOf<Result (*)(First, Second)> {
  using SecondType = Second;
};
template <typename Function>
using SecondArgument = typename ArgumentsOf<std::remove_cv_t<Function>>::SecondType;

template <typename Net>
class PluginNetwork final : public Network {
  static constexpr int kVersion = Net::kVersion;
  static constexpr bool kHasContext = kVersion >= 11;

 public:
  PluginNetwork(std::shared_ptr<void> library, const Net& net, const ExtensionV4* extension,
                uint64_t comm_id, int traffic_class)
      : library_(std::move(library)), net_(net), extension_(extension), name_(net.name) {
    config_.traffic_class = traffic_class;
    initialize(comm_id);
    const ncclResult_t code = net_.devices(&devices_);
    if (code == ncclSuccess && devices_ > 0) return;
    finalize();
    fail(ncclSystemError, "{}", code == ncclSuccess ? "it has no device" : reason());
  }
  ~PluginNetwork() override { finalize(); }

  const std::string& name() const override { return name_; }
  int version() const override { return kVersion; }
  int devices() const override { return devices_; }

  NetProperties properties(int device) override {
    typename Net::Properties from{};
    const ncclResult_t code = net_.get_properties(device, &from);
    if (code != ncclSuccess)
      fail(code, "network {} does not describe its device {}: {}", name_, device, reason());
    NetProperties to;
    to.name = from.name == nullptr ? "" : from.name;
    to.pci_path = from.pci_path == nullptr ? "" : from.pci_path;
    to.guid = from.guid;
    to.pointers = from.pointer_support;
    to.global_registration = from.registration_is_global != 0;
    to.speed_mbps = from.speed;
    to.port = from.port;
    to.latency_us = from.latency;
    to.max_comms = from.max_comms;
    to.max_receives = from.max_receives;
    if constexpr (kVersion >= 9) {
      to.force_flush = from.force_flush != 0;
      if (from.max_p2p_bytes > 0) to.max_bytes = from.max_p2p_bytes;
    }
    if constexpr (kVersion >= 12) {
      to.rail = from.rail;
      to.plane = from.plane;
    }
    if (from.device_type != net_abi::kDeviceHost)
      fail(ncclInvalidUsage, "network {} wants device code of its own (type {}): not supported",
           name_, static_cast<int>(from.device_type));
    return to;
  }

  int merge(const std::vector<int>& parts) noexcept override {
    if constexpr (kVersion >= 9) {
      std::remove_pointer_t<SecondArgument<decltype(net_.make_virtual_device)>> joined{};
      if (net_.make_virtual_device == nullptr || parts.size() > std::size(joined.devs)) return -1;
      for (const int part : parts) joined.devs[joined.ndevs++] = part;
      int device = -1;
      return net_.make_virtual_device(&device, &joined) == ncclSuccess ? device : -1;
    }
    return -1;
  }

  ncclResult_t listen(int device, NetHandle& handle, void** comm) noexcept override {
    if constexpr (kHasContext)
      return net_.listen(context_, device, handle.data(), comm);
    else
      return net_.listen(device, handle.data(), comm);
  }
  ncclResult_t connect(int device, NetHandle& handle, void** comm) noexcept override {
    DeviceHandle* offload = nullptr;
    if constexpr (kHasContext)
      return net_.connect(context_, device, handle.data(), comm, &offload);
    else if constexpr (kVersion == 10)
      return net_.connect(device, &config_, handle.data(), comm, &offload);
    else
      return net_.connect(device, handle.data(), comm, &offload);
  }
  void cancel(NetHandle& handle) noexcept override {
    if (extension_ != nullptr) extension_->cancel(handle.data());
  }
  ncclResult_t accept(void* listener, void** comm) noexcept override {
    DeviceHandle* offload = nullptr;
    return net_.accept(listener, comm, &offload);
  }
  ncclResult_t close_send(void* comm) noexcept override { return net_.close_send(comm); }
  ncclResult_t close_receive(void* comm) noexcept override { return net_.close_recv(comm); }
  ncclResult_t close_listen(void* comm) noexcept override { return net_.close_listen(comm); }

  ncclResult_t reg(void* comm, void* data, size_t size, net_abi::PointerKind kind,
                   void** registration) noexcept override {
    return net_.reg_mr(comm, data, size, kind, registration);
  }
  ncclResult_t reg_dma_buf(void* comm, void* data, size_t size, uint64_t offset, int fd,
                           void** registration) noexcept override {
    if (net_.reg_mr_dma_buf == nullptr) return ncclInvalidUsage;
    return net_.reg_mr_dma_buf(comm, data, size, net_abi::kCudaPointer, offset, fd, registration);
  }
  ncclResult_t dereg(void* comm, void* registration) noexcept override {
    return net_.dereg_mr(comm, registration);
  }

  ncclResult_t isend(void* comm, void* data, size_t size, void* registration,
                     void** request) noexcept override {
    if constexpr (kVersion >= 10) {
      return net_.isend(comm, data, size, 0, registration, nullptr, request);
    } else if constexpr (kVersion == 9) {
      return net_.isend(comm, data, size, 0, registration, request);
    } else {
      return net_.isend(comm, data, static_cast<int>(size), 0, registration, request);
    }
  }
  ncclResult_t irecv(void* comm, void* data, size_t size, void* registration,
                     void** request) noexcept override {
    int tag = 0;
    if constexpr (kVersion >= 10) {
      void* profiled = nullptr;
      return net_.irecv(comm, 1, &data, &size, &tag, &registration, &profiled, request);
    } else if constexpr (kVersion == 9) {
      return net_.irecv(comm, 1, &data, &size, &tag, &registration, request);
    } else {
      int bytes = static_cast<int>(size);
      return net_.irecv(comm, 1, &data, &bytes, &tag, &registration, request);
    }
  }
  ncclResult_t flush(void* comm, void* data, int size, void* registration,
                     void** request) noexcept override {
    *request = nullptr;
    if (net_.iflush == nullptr) return ncclSuccess;
    return net_.iflush(comm, 1, &data, &size, &registration, request);
  }
  ncclResult_t test(void* request, bool& done, size_t& size) noexcept override {
    int finished = 0, bytes = 0;
    const ncclResult_t code = net_.test(request, &finished, &bytes);
    done = finished != 0;
    size = static_cast<size_t>(static_cast<uint32_t>(bytes));
    return code;
  }

  bool can_lend() const override {
    return extension_ != nullptr && extension_->isend_two != nullptr;
  }
  bool can_sleep() const override { return extension_ != nullptr; }
  bool can_seal() const override {
    return extension_ != nullptr && extension_->use_wire != nullptr;
  }
  void use_secret(const Secret* secret, Wire wire) noexcept override {
    if (extension_ != nullptr) extension_->use_secret(secret == nullptr ? nullptr : secret->data());
    if (can_seal()) extension_->use_wire(secret == nullptr ? -1 : static_cast<int>(wire));
  }
  ncclResult_t isend_two(void* comm, void* head, size_t head_size, void* body, size_t body_size,
                         void** request) noexcept override {
    return extension_->isend_two(comm, head, head_size, body, body_size, request);
  }
  int waits_for(void* comm, pollfd* descriptors, int most) noexcept override {
    return extension_ == nullptr ? 0 : extension_->waits_for(comm, descriptors, most);
  }

  double round_trip_us(void* comm) noexcept override {
    return extension_ == nullptr ? 0 : extension_->round_trip_us(comm);
  }

  std::string reason() const override {
    const char* said = extension_ != nullptr ? extension_->last_error() : "";
    if (*said != '\0') return said;
    return last_warning().empty() ? "the plugin does not say why" : last_warning();
  }

 private:
  // Before v11 a plugin is initialized once per process, for all communicators.
  void initialize(uint64_t comm_id) {
    last_warning().clear();
    ncclResult_t code = ncclSuccess;
    if constexpr (kHasContext) {
      code = net_.init(&context_, comm_id, &config_, plugin_log, no_profiler);
    } else {
      static std::mutex mutex;
      static std::map<const Net*, ncclResult_t> initialized;
      std::lock_guard lock(mutex);
      const auto [it, fresh] = initialized.try_emplace(&net_, ncclSuccess);
      if constexpr (kVersion == 10) {
        if (fresh) it->second = net_.init(plugin_log, no_profiler);
      } else {
        if (fresh) it->second = net_.init(plugin_log);
      }
      code = it->second;
      if (code != ncclSuccess) initialized.erase(it);
    }
    if (code != ncclSuccess) fail(code, "its init failed: {}", reason());
  }
  void finalize() noexcept {
    if constexpr (kHasContext)
      if (net_.finalize != nullptr) net_.finalize(context_);
  }

  const std::shared_ptr<void> library_;
  const Net& net_;
  const ExtensionV4* const extension_;
  const std::string name_;
  net_abi::CommConfig config_{};
  void* context_ = nullptr;
  int devices_ = 0;
};

template <typename Net>
NetTable make_table(const std::shared_ptr<void>& library, const Net& net,
                    const ExtensionV4* extension) {
  return {net.name, Net::kVersion, [=, &net](uint64_t comm_id, int traffic_class) {
            return std::make_shared<PluginNetwork<Net>>(library, net, extension, comm_id,
                                                        traffic_class);
          }};
}

template <typename Net>
bool look_up(const std::shared_ptr<void>& library, int newest, NetTable& table) {
  if (Net::kVersion > newest) return false;
  const auto* net = static_cast<const Net*>(dlsym(library.get(), Net::kSymbol));
  if (net == nullptr) return false;
  const auto* extension =
      static_cast<const ExtensionV4*>(dlsym(library.get(), ExtensionV4::kSymbol));
  table = make_table(library, *net, extension);
  return true;
}

}  // namespace

NetTable find_table(const std::shared_ptr<void>& library, int newest) {
  NetTable table;
  static_cast<void>(look_up<net_abi::NetV12>(library, newest, table) ||
                    look_up<net_abi::NetV11>(library, newest, table) ||
                    look_up<net_abi::NetV10>(library, newest, table) ||
                    look_up<net_abi::NetV9>(library, newest, table) ||
                    look_up<net_abi::NetV8>(library, newest, table));
  return table;
}

NetTable built_in_table(const net_abi::NetV12& net, const ExtensionV4& extension) {
  return make_table(nullptr, net, &extension);
}

void plugin_log(net_abi::LogLevel level, unsigned long flags, const char* file, int line,
                const char* format, ...) {
  const auto as_level = static_cast<log::Level>(level);
  const auto subsystem = static_cast<log::Subsystem>(flags);
  if (level != net_abi::kLogWarn && !log::enabled(as_level, subsystem)) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (level == net_abi::kLogWarn) last_warning() = text;
  log::write(as_level, subsystem, file, line, text);
}

}  // namespace weft
