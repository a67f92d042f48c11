// One adapter for each version of the profiler ABI.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>

#include "src/comm/profiler/event.h"
#include "src/transport/plugin_network.h"

namespace weft {
namespace profiler_adapters {  // a separate namespace, because it imports all names of the ABI

using namespace profiler_abi;  // NOLINT

// NCCL's spelling, because users' tools read these names.
const char* function_name(const Call& call) {
  switch (call.kind) {
    case CollectiveKind::kAllReduce:
      return "AllReduce";
    case CollectiveKind::kBroadcast:
      return "Broadcast";
    case CollectiveKind::kReduce:
      return "Reduce";
    case CollectiveKind::kAllGather:
      return "AllGather";
    case CollectiveKind::kReduceScatter:
      return "ReduceScatter";
    case CollectiveKind::kAllToAll:
      return "AlltoAll";
    case CollectiveKind::kGather:
      return "Gather";
    case CollectiveKind::kScatter:
      return "Scatter";
    case CollectiveKind::kSendRecv:
      return call.sends ? "Send" : "Recv";
    case CollectiveKind::kAllToAllV:
      return "AlltoAllv";
  }
  return "Unknown";
}

// NCCL's numbers, for v1. NCCL has none for collectives that it makes of sends and receives.
uint8_t function_number(const Call& call) {
  switch (call.kind) {
    case CollectiveKind::kBroadcast:
      return 0;
    case CollectiveKind::kReduce:
      return 1;
    case CollectiveKind::kAllGather:
      return 2;
    case CollectiveKind::kReduceScatter:
      return 3;
    case CollectiveKind::kAllReduce:
      return 4;
    case CollectiveKind::kSendRecv:
      return call.sends ? 6 : 7;
    default:
      return 5;
  }
}

const char* type_name(const Call& call) {
  static constexpr std::array<const char*, ncclNumTypes> kTypes = {
      "ncclInt8",    "ncclUint8",    "ncclInt32",      "ncclUint32",
      "ncclInt64",   "ncclUint64",   "ncclFloat16",    "ncclFloat32",
      "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};
  return kTypes[static_cast<size_t>(call.reduction.type)];
}

constexpr const char* kAlgorithm = "WEFT";  // NCCL has no names for these plans
constexpr const char* kProtocol = "SIMPLE";

template <typename Part>
void fill_names(Part& part, const ProfiledComm& comm) {
  if constexpr (requires { part.comm; }) {
    part.name = comm.name.c_str();
    part.comm = comm.id;
  }
}

template <typename Part>
void fill_coll(Part& part, const ProfiledComm& comm, const ProfilerEvent& event) {
  const Call& call = *event.call;
  fill_names(part, comm);
  part.sequence = event.sequence;
  part.send = call.input;
  part.receive = call.output;
  part.count = call.count;
  part.root = call.root;
  part.channels = 1;
  if constexpr (requires { part.op; }) {
    part.function = function_number(call);
    part.type = static_cast<uint8_t>(call.reduction.type);
    part.op = static_cast<uint32_t>(call.reduction.op);
  } else {
    part.function = function_name(call);
    part.type = type_name(call);
    part.algorithm = kAlgorithm;
    part.protocol = kProtocol;
  }
  if constexpr (requires { part.group; }) part.group = event.group;
}

template <typename Part>
void fill_p2p(Part& part, const ProfiledComm& comm, const ProfilerEvent& event) {
  const Call& call = *event.call;
  fill_names(part, comm);
  part.buffer = call.sends ? const_cast<void*>(call.input) : call.output;
  part.count = call.count;
  part.peer = call.root;
  if constexpr (requires { part.function = uint8_t{0}; }) {
    part.function = function_number(call);
    part.type = static_cast<uint8_t>(call.reduction.type);
  } else {
    part.function = function_name(call);
    part.type = type_name(call);
  }
  if constexpr (requires { part.channels; }) part.channels = 1;
  if constexpr (requires { part.group; }) part.group = event.group;
}

void fill_api(DescriptorV5& to, const ProfilerEvent& event) {
  if (event.kind == kGroupApi) {
    to.group_api = {0, 1};
  } else if (event.kind == kKernelLaunch) {
    to.kernel_launch = {event.stream};
  } else if (event.kind == kCollApi) {
    const Call& call = *event.call;
    to.coll_api = {function_name(call), call.count, type_name(call), call.root, call.stream, false};
  } else if (event.kind == kP2pApi) {
    const Call& call = *event.call;
    to.p2p_api = {function_name(call), call.count, type_name(call), call.stream, false};
  }
}

void fill_proxy_op(ProxyOp& part, const ProfilerEvent& event) {
  const auto number = [](uint64_t value) {
    return static_cast<int>(std::min<uint64_t>(value, std::numeric_limits<int>::max()));
  };
  part.pid = getpid();
  part.channel = static_cast<uint8_t>(event.link->channel);
  part.peer = event.link->peer;
  part.steps = number(event.steps);
  part.chunk = number(event.largest);
  part.is_send = event.link->sends ? 1 : 0;
}

// A call is one channel, as its event says.
template <typename Descriptor>
void fill_kernel(Descriptor& to, const ProfilerEvent& event) {
  if constexpr (requires { to.kernel; }) to.kernel = {0, event.gpu_time};
}

constexpr int kOldKinds = kGroup | kColl | kP2p | kProxyOp | kProxyStep | kProxyCtrl;

template <int kVersion, typename AbiTable, typename Descriptor>
class PluginOf : public ProfilerPlugin {
 public:
  explicit PluginOf(const AbiTable& table) : table_(table) {}
  int version() const override { return kVersion; }
  const char* name() const override { return table_.name; }
  ncclResult_t open(void** context, int* mask, const ProfiledComm& comm) const override {
    if constexpr (kVersion >= 5)
      return table_.init(context, comm.id, mask, comm.name.c_str(), comm.nodes, comm.nranks,
                         comm.rank, plugin_log);
    else if constexpr (kVersion == 4)
      return table_.init(context, mask, comm.name.c_str(), comm.id, comm.nodes, comm.nranks,
                         comm.rank, plugin_log);
    else
      return table_.init(context, mask);
  }
  void* start(void* context, const ProfiledComm& comm, const ProfilerEvent& event) const override {
    constexpr int kKinds = kVersion >= 3 ? kOldKinds | kKernelCh : kOldKinds;
    if (kVersion < 5 && (event.kind & kKinds) == 0) return nullptr;
    Descriptor descriptor{};
    descriptor.kind = static_cast<decltype(descriptor.kind)>(event.kind);
    descriptor.parent = event.parent;
    descriptor.rank = comm.rank;
    if (event.kind == kColl)
      fill_coll(descriptor.coll, comm, event);
    else if (event.kind == kP2p)
      fill_p2p(descriptor.p2p, comm, event);
    else if (event.kind == kProxyOp)
      fill_proxy_op(descriptor.proxy_op, event);
    else if (event.kind == kProxyStep)
      descriptor.proxy_step.step = static_cast<int>(event.steps);
    else if (event.kind == kKernelCh)
      fill_kernel(descriptor, event);
    else if constexpr (kVersion >= 5)
      fill_api(descriptor, event);
    void* handle = nullptr;
    if (table_.functions.start_event(context, &handle, &descriptor) != ncclSuccess) return nullptr;
    return handle;
  }
  void stop(void* event) const override { table_.functions.stop_event(event); }
  void record(void* event, State state, const OperationProgress& progress) const override {
    if constexpr (kVersion >= 4) {
      if (state <= kOpRecvDone) return;
      StateArgumentsV4 arguments{};
      if (state == kKernelChStop)
        arguments.kernel.gpu_time = progress.gpu_time;
      else
        arguments.proxy_step.bytes = progress.bytes;  // 0 except for steps
      table_.functions.record_state(event, state, &arguments);
    } else {
      if (state == kOpInProgress || state == kStepSendPeerWait || state == kKernelChStop) return;
      StateArgumentsV1 arguments{};
      if (state <= kOpRecvDone) arguments.proxy_op = {progress.bytes, progress.steps};
      table_.functions.record_state(event, state, &arguments);
    }
  }
  void close(void* context) const override { table_.functions.finalize(context); }

 private:
  const AbiTable& table_;
};

template <int kVersion, typename AbiTable, typename Descriptor>
std::unique_ptr<ProfilerPlugin> look_for(void* library, const char* symbol) {
  const auto* table = static_cast<const AbiTable*>(dlsym(library, symbol));
  if (table == nullptr) return nullptr;
  return std::make_unique<PluginOf<kVersion, AbiTable, Descriptor>>(*table);
}

}  // namespace profiler_adapters

std::unique_ptr<ProfilerPlugin> find_profiler(void* library) {
  using namespace profiler_adapters;  // NOLINT
  if (auto v5 = look_for<5, TableV5, DescriptorV5>(library, "ncclProfiler_v5")) return v5;
  if (auto v4 = look_for<4, TableV4, DescriptorV4>(library, "ncclProfiler_v4")) return v4;
  if (auto v3 = look_for<3, TableV3, DescriptorV3>(library, "ncclProfiler_v3")) return v3;
  if (auto v2 = look_for<2, TableV2, DescriptorV2>(library, "ncclProfiler_v2")) return v2;
  return look_for<1, TableV1, DescriptorV1>(library, "ncclProfiler_v1");
}

}  // namespace weft
