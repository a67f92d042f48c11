// An external plugin of ABI version WEFT_TINY_VERSION, 8 to 12: the tiny network under the name
// "tiny8" to "tiny12". From version 11 on it checks that every communicator passes the context that
// its init() gave; before, that init() is called once. It has two devices, a slow one that nobody
// should use; or those of WEFT_TEST_NICS ("nic0,nic1:2000", with a speed that is not the usual
// one). WEFT_TEST_NIC_LOG names a file with a line for each route, "sends nic0" or "receives nic0",
// and "traffic class 7" for each connection of a communicator that has one. WEFT_TEST_NIC_BYTES: a
// file that has, at the end of the process, the bytes that it sent. WEFT_TEST_NIC_GPU: its devices
// take GPU memory, and want flushes (gpu_memory.h): "1" by address, "dmabuf" by descriptor only.
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/transport/net_abi/v10.h"
#include "src/transport/net_abi/v12.h"
#include "src/transport/net_abi/v8.h"
#include "tests/net/plugins/gpu_memory.h"
#include "tests/net/plugins/tiny_net.h"

#define WEFT_JOIN_NOW(a, b) a##b
#define WEFT_JOIN(a, b) WEFT_JOIN_NOW(a, b)
#define WEFT_TINY_TABLE WEFT_JOIN(ncclNetPlugin_v, WEFT_TINY_VERSION)

namespace weft::test::tiny {
namespace {

using Net = net_abi::WEFT_JOIN(NetV, WEFT_TINY_VERSION);
constexpr int kVersion = Net::kVersion;
using Size = std::conditional_t<kVersion == 8, int, size_t>;

const std::string& name() {
  static const auto& text =
      *std::make_unique<std::string>("tiny" + std::to_string(kVersion)).release();
  return text;
}

struct Context {
  int traffic_class = net_abi::kUndefined;
  uint32_t magic = 0x11;
};

struct Nic {
  std::string name;
  int speed = 100000;
};

// Made once and never freed: the library keeps the pointers.
const std::vector<Nic>& nics() {
  static const auto& all = *[] {
    auto list = std::make_unique<std::vector<Nic>>();
    const char* said = std::getenv("WEFT_TEST_NICS");
    std::istringstream words(said == nullptr ? "slow:1000," + name() + "dev" : said);
    for (std::string one; std::getline(words, one, ',');) {
      const size_t colon = one.find(':');
      list->push_back({one.substr(0, colon)});
      if (colon != std::string::npos) list->back().speed = std::stoi(one.substr(colon + 1));
      if (one == "slow") list->back().speed = 1000;
    }
    return list.release();
  }();
  return all;
}

const std::string& nic(int dev) { return nics()[static_cast<size_t>(dev)].name; }
bool is_fast(int dev) { return nic(dev) != "slow"; }

void note(const std::string& line) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (const char* file = std::getenv("WEFT_TEST_NIC_LOG"))
    std::ofstream(file, std::ios::app) << line << '\n';
}

struct Sent {
  std::atomic<uint64_t> bytes{0};
  ~Sent() {
    if (const char* file = std::getenv("WEFT_TEST_NIC_BYTES")) std::ofstream(file) << bytes << '\n';
  }
} sent;

bool genuine(const void* context) {
  return context != nullptr && static_cast<const Context*>(context)->magic == 0x11;
}

ncclResult_t init(net_abi::Logger log) {
  static bool before = false;
  if (std::exchange(before, true)) return ncclInternalError;
  log(net_abi::kLogInfo, 0x10, __FILE__, __LINE__, "tiny%d is here", kVersion);
  return ncclSuccess;
}
ncclResult_t init_profiled(net_abi::Logger log, net_abi::ProfilerCallback profiler) {
  return profiler == nullptr ? ncclInvalidArgument : init(log);
}
ncclResult_t init_context(void** context, uint64_t comm_id, net_abi::CommConfig* config,
                          net_abi::Logger log, net_abi::ProfilerCallback profiler) {
  if (config == nullptr || log == nullptr || profiler == nullptr) return ncclInvalidArgument;
  log(net_abi::kLogInfo, 0x10, __FILE__, __LINE__, "tiny%d for communicator %lx", kVersion,
      comm_id);
  *context = std::make_unique<Context>(Context{config->traffic_class}).release();
  return ncclSuccess;
}
ncclResult_t finalize(void* context) {
  if (!genuine(context)) return ncclInvalidArgument;
  const std::unique_ptr<Context> owner(static_cast<Context*>(context));
  owner->magic = 0;
  return ncclSuccess;
}
ncclResult_t devices(int* ndev) {
  *ndev = static_cast<int>(nics().size());
  return ncclSuccess;
}
template <typename Properties>
ncclResult_t properties(int dev, Properties* p) {
  *p = {};
  p->name = const_cast<char*>(nic(dev).c_str());
  p->pointer_support = net_abi::kHostPointer;
  const char* gpu = std::getenv("WEFT_TEST_NIC_GPU");
  if (gpu != nullptr) {
    p->pointer_support |= gpu == std::string("dmabuf") ? net_abi::kDmaBuf : net_abi::kCudaPointer;
    if constexpr (requires { p->force_flush; }) p->force_flush = 1;
  }
  p->speed = nics()[static_cast<size_t>(dev)].speed;
  p->max_comms = 64;
  p->max_receives = 8;
  if constexpr (requires { p->max_p2p_bytes; }) p->max_p2p_bytes = net_abi::kLargestSize;
  return ncclSuccess;
}

ncclResult_t listen_at(int dev, void* handle, void** comm) {
  if (!is_fast(dev)) return ncclInvalidArgument;
  note("receives " + nic(dev));
  return listen(handle, comm);
}
ncclResult_t listen_in(void* context, int dev, void* handle, void** comm) {
  return genuine(context) ? listen_at(dev, handle, comm) : ncclInvalidArgument;
}
ncclResult_t connect_as(int traffic_class, int dev, void* handle, void** comm) {
  if (!is_fast(dev)) return ncclInvalidArgument;
  const ncclResult_t result = connect(handle, comm);
  if (*comm == nullptr) return result;
  note("sends " + nic(dev));
  if (traffic_class != net_abi::kUndefined) note("traffic class " + std::to_string(traffic_class));
  return result;
}
ncclResult_t connect_to(int dev, void* handle, void** comm, net_abi::DeviceHandle**) {
  return connect_as(net_abi::kUndefined, dev, handle, comm);
}
ncclResult_t connect_with(int dev, net_abi::CommConfig* config, void* handle, void** comm,
                          net_abi::DeviceHandle**) {
  if (config == nullptr) return ncclInvalidArgument;
  return connect_as(config->traffic_class, dev, handle, comm);
}
ncclResult_t connect_in(void* context, int dev, void* handle, void** comm,
                        net_abi::DeviceHandle**) {
  if (!genuine(context)) return ncclInvalidArgument;
  return connect_as(static_cast<Context*>(context)->traffic_class, dev, handle, comm);
}
ncclResult_t accept_from(void* listener, void** comm, net_abi::DeviceHandle**) {
  return accept(listener, comm);
}

ncclResult_t isend_tagged(void* comm, void* data, Size size, int, void* mr, void** request) {
  const ncclResult_t result = gpu::isend(comm, data, static_cast<size_t>(size), mr, request);
  if (*request != nullptr) sent.bytes += static_cast<size_t>(size);
  return result;
}
ncclResult_t isend_profiled(void* comm, void* data, Size size, int tag, void* mr, void*,
                            void** request) {
  return isend_tagged(comm, data, size, tag, mr, request);
}
ncclResult_t irecv_tagged(void* comm, int n, void** data, Size* sizes, int*, void** mrs,
                          void** request) {
  if (n != 1) return ncclInvalidArgument;
  return gpu::irecv(comm, data[0], static_cast<size_t>(sizes[0]), mrs[0], request);
}
ncclResult_t irecv_profiled(void* comm, int n, void** data, Size* sizes, int* tags, void** mrs,
                            void**, void** request) {
  return irecv_tagged(comm, n, data, sizes, tags, mrs, request);
}

template <typename Table>
void fill(Table& table) {
  table.name = name().c_str();
  table.devices = devices;
  table.get_properties = properties<typename Table::Properties>;
  table.accept = accept_from;
  table.reg_mr = gpu::reg;
  table.reg_mr_dma_buf = gpu::reg_dma_buf;
  table.dereg_mr = gpu::dereg;
  table.iflush = gpu::flush;
  table.test = gpu::test;
  table.close_send = table.close_recv = gpu::close_comm;
  table.close_listen = close_listener;
  if constexpr (kVersion >= 10) {
    table.isend = isend_profiled;
    table.irecv = irecv_profiled;
  } else {
    table.isend = isend_tagged;
    table.irecv = irecv_tagged;
  }
  if constexpr (kVersion >= 11) {
    table.init = init_context;
    table.listen = listen_in;
    table.connect = connect_in;
    table.finalize = finalize;
  } else {
    table.listen = listen_at;
    if constexpr (kVersion == 10) {
      table.init = init_profiled;
      table.connect = connect_with;
    } else {
      table.init = init;
      table.connect = connect_to;
    }
  }
}

Net made() {
  Net table{};
  fill(table);
  return table;
}

}  // namespace
}  // namespace weft::test::tiny

extern "C" __attribute__((visibility("default"))) const weft::test::tiny::Net WEFT_TINY_TABLE =
    weft::test::tiny::made();
