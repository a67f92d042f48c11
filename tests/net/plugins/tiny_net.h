// The smallest network that obeys NCCL's plugin ABI, for the plugins of the tests. Messages have a
// length in front and go over unix sockets of this machine. It uses the freedoms of the ABI:
// connecting takes several calls, every third request is refused at first, few fit in flight.
#pragma once

#include <cstddef>

#include "src/transport/net_abi/common.h"

namespace weft::test::tiny {

ncclResult_t listen(void* handle, void** listener);
ncclResult_t connect(void* handle, void** comm);
ncclResult_t accept(void* listener, void** comm);
ncclResult_t close_comm(void* comm);
ncclResult_t close_listener(void* listener);
ncclResult_t reg(void* comm, void* data, size_t size, int type, void** registration);
ncclResult_t dereg(void* comm, void* registration);
// isend and irecv check that the memory lies in the registration.
ncclResult_t isend(void* comm, void* data, size_t size, void* registration, void** request);
ncclResult_t irecv(void* comm, void* data, size_t size, void* registration, void** request);
ncclResult_t test(void* request, int* done, int* size);

}  // namespace weft::test::tiny
