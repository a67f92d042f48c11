// An external plugin of ABI version 11: the tiny network under the name "tiny11". It checks that
// every communicator passes the context that its init() gave.
#include <memory>

#include "src/transport/net_abi/v11.h"
#include "tests/net/plugins/tiny_net.h"

namespace weft::test::tiny {
namespace {

struct Context {
  uint64_t comm_id = 0;
  uint32_t magic = 0x11;
};
char name[] = "tiny11dev";

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
  *ndev = 2;  // unequal: the library should use only the fast one
  return ncclSuccess;
}
ncclResult_t properties(int dev, net_abi::PropertiesV11* p) {
  *p = {};
  p->name = name;
  p->pointer_support = net_abi::kHostPointer;
  p->speed = dev == 1 ? 100000 : 1000;
  p->max_comms = 64;
  p->max_receives = 8;
  p->max_p2p_bytes = net_abi::kLargestSize;
  return ncclSuccess;
}
ncclResult_t listen_at(void* context, int dev, void* handle, void** comm) {
  return genuine(context) && dev == 1 ? listen(handle, comm) : ncclInvalidArgument;
}
ncclResult_t connect_to(void* context, int dev, void* handle, void** comm,
                        net_abi::DeviceHandle**) {
  return genuine(context) && dev == 1 ? connect(handle, comm) : ncclInvalidArgument;
}
ncclResult_t accept_from(void* listener, void** comm, net_abi::DeviceHandle**) {
  return accept(listener, comm);
}
ncclResult_t isend_tagged(void* comm, void* data, size_t size, int, void* mr, void*,
                          void** request) {
  return isend(comm, data, size, mr, request);
}
ncclResult_t irecv_tagged(void* comm, int n, void** data, size_t* sizes, int*, void** mrs, void**,
                          void** request) {
  if (n != 1) return ncclInvalidArgument;
  return irecv(comm, data[0], sizes[0], mrs[0], request);
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
                                                  tiny::reg,
                                                  nullptr,
                                                  tiny::dereg,
                                                  tiny::isend_tagged,
                                                  tiny::irecv_tagged,
                                                  nullptr,
                                                  tiny::test,
                                                  tiny::close_comm,
                                                  tiny::close_comm,
                                                  tiny::close_listener,
                                                  nullptr,
                                                  nullptr,
                                                  nullptr,
                                                  tiny::finalize,
                                                  nullptr}};
