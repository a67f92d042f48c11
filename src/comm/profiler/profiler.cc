// See profiler.h.
#include "src/comm/profiler/profiler.h"

#include <dlfcn.h>

#include <algorithm>
#include <mutex>

#include "src/base/log.h"
#include "src/transport/net_plugins.h"
#include "src/transport/proxy.h"

namespace weft {
namespace {

// The files of an entry of NCCL_PROFILER_PLUGIN, by NCCL's rules.
std::vector<std::string> files_of(const std::string& name) {
  if (name == "STATIC_PLUGIN") return {""};
  const bool library = name.starts_with("lib") && name.ends_with(".so");
  if (library || name.find('/') != std::string::npos) return {name};
  return {name, "libnccl-profiler-" + name + ".so"};
}

// Loads the plugin. It is never unloaded, because events may be open at exit.
const ProfilerPlugin* load(const Config& config) {
  const bool named = config.profiler_plugin.has_value();
  const std::string name = config.profiler_plugin.value_or("libnccl-profiler.so");
  if (name == "none") return nullptr;
  std::vector<std::string> files = files_of(name);
  // A network plugin may contain a profiler.
  for (const std::string& net : plugin_files(config.net_plugin.value_or("libnccl-net.so"), ""))
    if (!net.empty()) files.push_back(net);
  std::string why;
  for (const std::string& file : files) {
    void* library = dlopen(file.empty() ? nullptr : file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      why += (why.empty() ? "" : "; ") + std::string(dlerror());
      continue;
    }
    if (auto plugin = find_profiler(library)) {
      WEFT_INFO(kProfile, "profiler {} (ABI v{}) from {}", plugin->name(), plugin->version(),
                file.empty() ? "the program" : file);
      return plugin.release();
    }
    why += (why.empty() ? "" : "; ") + file + " exports no ncclProfiler_v1 to _v5";
    dlclose(library);
  }
  if (named)
    WEFT_WARN("NCCL_PROFILER_PLUGIN={}: no profiler: {}", name, why);
  else
    WEFT_INFO(kProfile, "no profiler: {}", why);
  return nullptr;
}

// The mask bits that ask for events of this kind. As in NCCL, a plugin that asks for an event also
// gets the events above it.
int asked_by(profiler_abi::Kind kind) {
  using namespace profiler_abi;  // NOLINT
  constexpr int kOfSteps = kProxyStep | kNetPlugin, kOfOps = kProxyOp | kOfSteps;
  constexpr int kOfCalls = kOfOps | kKernelCh;
  switch (kind) {
    case kGroupApi:
      return kGroupApi | kCollApi | kP2pApi | kKernelLaunch | kGroup | kColl | kP2p | kOfCalls;
    case kGroup:
      return kGroup | kColl | kP2p | kOfCalls;
    case kCollApi:
      return kCollApi | kColl | kOfCalls;
    case kP2pApi:
      return kP2pApi | kP2p | kOfCalls;
    case kColl:
    case kP2p:
      return kind | kOfCalls;
    case kProxyOp:
      return kOfOps;
    case kProxyStep:
      return kOfSteps;
    default:
      return kind;
  }
}

}  // namespace

std::unique_ptr<Profiler> Profiler::open(const Config& config, const ProfiledComm& comm) {
  static std::once_flag once;
  static const ProfilerPlugin* plugin = nullptr;
  static int mask = 0;
  std::call_once(once, [&] { plugin = load(config); });
  return plugin == nullptr ? nullptr : open(*plugin, comm, mask);
}

std::unique_ptr<Profiler> Profiler::open(const ProfilerPlugin& plugin, const ProfiledComm& comm,
                                         int& mask) {
  std::unique_ptr<Profiler> profiler(new Profiler(plugin, comm, mask));
  if (plugin.open(&profiler->context_, &mask, profiler->comm_) != ncclSuccess) {
    WEFT_WARN("profiler {} does not start for rank {} of {}", plugin.name(), comm.rank,
              comm.nranks);
    return nullptr;
  }
  profiler->opened_ = true;
  return profiler;
}

Profiler::~Profiler() {
  stop();
  proxies_.clear();
  kernels_.reset();
  if (opened_) plugin_.close(context_);
}

void Profiler::follow(std::span<const NetworkLinks::Link> links) {
  for (const NetworkLinks::Link& link : links) {
    Proxy& proxy = link.stream->proxy();
    auto events =
        std::make_unique<StreamEvents>(*this, link.route.peer, link.route.channel, link.sends);
    streams_[link.stream.get()] = events.get();
    proxy.observe(*link.stream, std::move(events));
    const bool known = std::any_of(proxies_.begin(), proxies_.end(),
                                   [&](const auto& seen) { return &seen->proxy() == &proxy; });
    if (!known) proxies_.push_back(std::make_unique<ProxyEvents>(*this, proxy));
  }
}

bool Profiler::asks(profiler_abi::Kind kind) const {
  return (__atomic_load_n(&mask_, __ATOMIC_RELAXED) & asked_by(kind)) != 0;
}

void* Profiler::start_event(const ProfilerEvent& event) const {
  return asks(event.kind) ? plugin_.start(context_, comm_, event) : nullptr;
}

void* Profiler::begin(const ProfilerEvent& event) {
  void* handle = start_event(event);
  if (handle != nullptr) running_.push_back(handle);
  return handle;
}

void Profiler::start(std::span<const Call* const> calls, bool on_gpu) {
  void* api = begin({.kind = profiler_abi::kGroupApi});
  void* group = begin({.kind = profiler_abi::kGroup, .parent = api});
  for (const Call* call : calls) {
    const bool send_recv = call->kind == CollectiveKind::kSendRecv;
    ProfilerEvent event;
    event.call = call;
    event.kind = send_recv ? profiler_abi::kP2pApi : profiler_abi::kCollApi;
    event.parent = api;
    void* own_api = begin(event);
    event.kind = send_recv ? profiler_abi::kP2p : profiler_abi::kColl;
    // The parent of a call is its API event in v5, and the group in earlier versions.
    event.parent = plugin_.version() >= 5 ? own_api : group;
    event.group = group;
    if (!send_recv) event.sequence = sequence_++;
    parents_.emplace_back(call, begin(event));
  }
  if (on_gpu && !calls.empty())
    begin({.kind = profiler_abi::kKernelLaunch, .parent = api, .stream = calls[0]->stream});
}

void* Profiler::event_of(const void* call) const {
  const auto own = std::find_if(parents_.begin(), parents_.end(),
                                [&](const auto& parent) { return parent.first == call; });
  return own == parents_.end() ? nullptr : own->second;
}

void Profiler::kernels(const void* call, const KernelTimes& times) {
  kernels_->expect(event_of(call), times);
}

void Profiler::begins(const void* call, std::span<const StreamTraffic> traffic) {
  for (const StreamTraffic& part : traffic) {
    StreamEvents& events = *streams_.at(part.stream);
    events.expect(event_of(call), part.messages, part.largest);
    expected_.push_back(&events);
  }
  // All proxy events of the call must begin first. A plugin takes the call for done when as many
  // have ended as have begun.
  for (const StreamTraffic& part : traffic) streams_.at(part.stream)->take_early();
}

void Profiler::captured() {
  for (const auto& [stream, events] : streams_) events->expect_no_more();
}

void Profiler::stop() {
  for (; !expected_.empty(); expected_.pop_back()) expected_.back()->take_back();
  parents_.clear();
  for (; !running_.empty(); running_.pop_back()) plugin_.stop(running_.back());
}

}  // namespace weft
