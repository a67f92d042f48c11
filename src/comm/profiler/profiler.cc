// See profiler.h.
#include "src/comm/profiler/profiler.h"

#include <dlfcn.h>

#include <mutex>

#include "src/base/log.h"
#include "src/transport/net_plugins.h"

namespace weft {
namespace {

// The files of an entry of NCCL_PROFILER_PLUGIN, by NCCL's rules.
std::vector<std::string> files_of(const std::string& name) {
  if (name == "STATIC_PLUGIN") return {""};
  const bool library = name.starts_with("lib") && name.ends_with(".so");
  if (library || name.find('/') != std::string::npos) return {name};
  return {name, "libnccl-profiler-" + name + ".so"};
}

// Loaded once, and never unloaded: events may be open at exit.
const ProfilerPlugin* load(const Config& config) {
  const bool named = config.profiler_plugin.has_value();
  const std::string name = config.profiler_plugin.value_or("libnccl-profiler.so");
  if (name == "none") return nullptr;
  std::vector<std::string> files = files_of(name);
  // A network plugin may have a profiler in it.
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

}  // namespace

std::unique_ptr<Profiler> Profiler::open(const Config& config, const ProfiledComm& comm) {
  static std::once_flag once;
  static const ProfilerPlugin* plugin = nullptr;
  std::call_once(once, [&] { plugin = load(config); });
  if (plugin == nullptr) return nullptr;
  std::unique_ptr<Profiler> profiler(new Profiler(*plugin, comm));
  void* context = nullptr;
  if (plugin->open(&context, &profiler->mask_, profiler->comm_) != ncclSuccess) {
    WEFT_WARN("profiler {} does not start for rank {} of {}", plugin->name(), comm.rank,
              comm.nranks);
    return nullptr;
  }
  profiler->context_ = context;
  return profiler;
}

Profiler::~Profiler() {
  stop();
  if (context_ != nullptr) plugin_.close(context_);
}

void* Profiler::begin(const ProfilerEvent& event) {
  if ((mask_ & event.kind) == 0) return nullptr;
  void* handle = plugin_.start(context_, comm_, event);
  if (handle != nullptr) running_.push_back(handle);
  return handle;
}

void Profiler::start(std::span<const Call* const> calls, bool on_gpu) {
  void* api = begin({.kind = profiler_abi::kGroupApi});
  void* group = begin({.kind = profiler_abi::kGroup, .parent = api});
  for (const Call* call : calls) {
    const bool pair = call->kind == CollectiveKind::kSendRecv;
    ProfilerEvent event;
    event.call = call;
    event.kind = pair ? profiler_abi::kP2pApi : profiler_abi::kCollApi;
    event.parent = api;
    void* own_api = begin(event);
    event.kind = pair ? profiler_abi::kP2p : profiler_abi::kColl;
    // v5 has API events above calls, earlier versions the group.
    event.parent = plugin_.version() >= 5 ? own_api : group;
    event.group = group;
    if (!pair) event.sequence = sequence_++;
    begin(event);
  }
  if (on_gpu && !calls.empty())
    begin({.kind = profiler_abi::kKernelLaunch, .parent = api, .stream = calls[0]->stream});
}

void Profiler::stop() {
  for (; !running_.empty(); running_.pop_back()) plugin_.stop(running_.back());
}

}  // namespace weft
