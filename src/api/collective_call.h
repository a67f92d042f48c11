// The arguments of a collective, checked, as a Call.
#pragma once

#include "src/comm/call.h"
#include "src/comm/handle.h"

namespace weft::api {

struct Arguments {
  CollectiveKind kind;
  const void* sendbuff;
  void* recvbuff;
  size_t count;
  ncclDataType_t type;
  ncclComm_t comm;
  cudaStream_t stream = nullptr;
  const char* count_name = "count";
  int root = 0;
  const ncclRedOp_t* op = nullptr;
};

// Throws Error(ncclInvalidArgument).
Call checked_call(const Arguments& arguments);

// The line that NCCL writes for every call. Tools read it.
void log_call(const char* function, ncclComm& comm, const Call& call, int op);

}  // namespace weft::api
