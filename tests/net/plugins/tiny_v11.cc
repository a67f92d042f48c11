// An external plugin of ABI version 11: the tiny network under the name "tiny11". It checks that
// every communicator passes the context that its init() gave. It has two devices, a slow one that
// nobody should use; or those of WEFT_TEST_NICS ("nic0,nic1"), equally fast. WEFT_TEST_NIC_LOG
// names a file with a line for each route: "sends nic0" or "receives nic0". WEFT_TEST_NIC_BYTES:
// a file that has, at the end of the process, the bytes that it sent. WEFT_TEST_NIC_GPU=1: its
// devices take GPU memory, and want flushes (gpu_memory.h).
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "src/transport/net_abi/v11.h"
#include "tests/net/plugins/gpu_memory.h"
#include "tests/net/plugins/tiny_net.h"

namespace weft::test::tiny {
namespace {

struct Context {
  uint64_t comm_id = 0;
  uint32_t magic = 0x11;
};

// Made once and never freed: the library keeps the pointers.
const std::vector<std::string>& nics() {
  static const auto& names = *[] {
    auto list = std::make_unique<std::vector<std::string>>();
    const char* said = std::getenv("WEFT_TEST_NICS");
    std::istringstream words(said == nullptr ? "slow,tiny11dev" : said);
    for (std::string one; std::getline(words, one, ',');) list->push_back(one);
    return list.release();
  }();
  return names;
}

bool is_fast(int dev) { return nics()[static_cast<size_t>(dev)] != "slow"; }

void note(const char* what, int dev) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (const char* file = std::getenv("WEFT_TEST_NIC_LOG"))
    std::ofstream(file, std::ios::app) << what << ' ' << nics()[static_cast<size_t>(dev)] << '\n';
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

ncclResult_t init(void** context, uint64_t comm_id, net_abi::CommConfig* config,
                  net_abi::Logger log, net_abi::ProfilerCallback profiler) {
  if (config == nullptr || log == nullptr || profiler == nullptr) return ncclInvalidArgument;
  log(net_abi::kLogInfo, 0x10, __FILE__, __LINE__, "tiny11 for communicator %lx", comm_id);
  *context = std::make_unique<Context>(Context{comm_id}).release();
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
ncclResult_t properties(int dev, net_abi::PropertiesV11* p) {
  *p = {};
  p->name = const_cast<char*>(nics()[static_cast<size_t>(dev)].c_str());
  p->pointer_support = net_abi::kHostPointer;
  if (std::getenv("WEFT_TEST_NIC_GPU") != nullptr) {
    p->pointer_support |= net_abi::kCudaPointer;
    p->force_flush = 1;
  }
  p->speed = is_fast(dev) ? 100000 : 1000;
  p->max_comms = 64;
  p->max_receives = 8;
  p->max_p2p_bytes = net_abi::kLargestSize;
  return ncclSuccess;
}
ncclResult_t listen_at(void* context, int dev, void* handle, void** comm) {
  if (!genuine(context) || !is_fast(dev)) return ncclInvalidArgument;
  note("receives", dev);
  return listen(handle, comm);
}
ncclResult_t connect_to(void* context, int dev, void* handle, void** comm,
                        net_abi::DeviceHandle**) {
  if (!genuine(context) || !is_fast(dev)) return ncclInvalidArgument;
  const ncclResult_t result = connect(handle, comm);
  if (*comm != nullptr) note("sends", dev);
  return result;
}
ncclResult_t accept_from(void* listener, void** comm, net_abi::DeviceHandle**) {
  return accept(listener, comm);
}
ncclResult_t isend_tagged(void* comm, void* data, size_t size, int, void* mr, void*,
                          void** request) {
  const ncclResult_t result = gpu::isend(comm, data, size, mr, request);
  if (*request != nullptr) sent.bytes += size;
  return result;
}
ncclResult_t irecv_tagged(void* comm, int n, void** data, size_t* sizes, int*, void** mrs, void**,
                          void** request) {
  if (n != 1) return ncclInvalidArgument;
  return gpu::irecv(comm, data[0], sizes[0], mrs[0], request);
}

}  // namespace
}  // namespace weft::test::tiny

namespace tiny = weft::test::tiny;
extern "C" __attribute__((visibility("default")))
const weft::net_abi::NetV11 ncclNetPlugin_v11 = {{"tiny11",
                                                  tiny::init,
                                                  tiny::devices,
                                                  tiny::properties,
                                                  tiny::listen_at,
                                                  tiny::connect_to,
                                                  tiny::accept_from,
                                                  tiny::gpu::reg,
                                                  nullptr,
                                                  tiny::gpu::dereg,
                                                  tiny::isend_tagged,
                                                  tiny::irecv_tagged,
                                                  tiny::gpu::flush,
                                                  tiny::gpu::test,
                                                  tiny::gpu::close_comm,
                                                  tiny::gpu::close_comm,
                                                  tiny::close_listener,
                                                  nullptr,
                                                  nullptr,
                                                  nullptr,
                                                  tiny::finalize,
                                                  nullptr}};
