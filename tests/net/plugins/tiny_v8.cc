// An external plugin of ABI version 8: the tiny network under the name "tiny8".
#include "src/transport/net_abi/v8.h"
#include "tests/net/plugins/tiny_net.h"

namespace weft::test::tiny {
namespace {

net_abi::Logger logger = nullptr;
char name[] = "tiny8dev";

ncclResult_t init(net_abi::Logger log) {
  if (logger != nullptr) return ncclInternalError;  // before v11, init() is called once per process
  logger = log;
  log(net_abi::kLogInfo, 0x10, __FILE__, __LINE__, "tiny8 is here, %d device", 1);
  return ncclSuccess;
}
ncclResult_t devices(int* ndev) {
  *ndev = 1;
  return ncclSuccess;
}
ncclResult_t properties(int dev, net_abi::PropertiesV8* p) {
  if (dev != 0) return ncclInvalidArgument;
  *p = {name, nullptr, 1, net_abi::kHostPointer, 0, 10000, 1, 0, 64, 1, net_abi::kDeviceHost, 0};
  return ncclSuccess;
}
ncclResult_t listen_at(int, void* handle, void** comm) { return listen(handle, comm); }
ncclResult_t connect_to(int, void* handle, void** comm, net_abi::DeviceHandle**) {
  return connect(handle, comm);
}
ncclResult_t accept_from(void* listener, void** comm, net_abi::DeviceHandle**) {
  return accept(listener, comm);
}
ncclResult_t isend_int(void* comm, void* data, int size, int, void* mr, void** request) {
  return isend(comm, data, static_cast<size_t>(size), mr, request);
}
ncclResult_t irecv_int(void* comm, int n, void** data, int* sizes, int*, void** mrs,
                       void** request) {
  if (n != 1) return ncclInvalidArgument;
  return irecv(comm, data[0], static_cast<size_t>(sizes[0]), mrs[0], request);
}

}  // namespace
}  // namespace weft::test::tiny

namespace tiny = weft::test::tiny;
extern "C" __attribute__((visibility("default"))) const weft::net_abi::NetV8 ncclNetPlugin_v8 = {
    "tiny8",          tiny::init,           tiny::devices, tiny::properties, tiny::listen_at,
    tiny::connect_to, tiny::accept_from,    tiny::reg,     nullptr,          tiny::dereg,
    tiny::isend_int,  tiny::irecv_int,      nullptr,       tiny::test,       tiny::close_comm,
    tiny::close_comm, tiny::close_listener, nullptr,       nullptr};
