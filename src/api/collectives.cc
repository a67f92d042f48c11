// The collectives and point-to-point calls: check arguments, submit.
#include "src/api/checks.h"
#include "src/api/collective_call.h"
#include "src/api/guard.h"
#include "src/comm/group.h"

namespace weft::api {
namespace {

ncclResult_t submit_logged(const char* function, ncclComm& comm, const Call& call, int op) {
  log_call(function, comm, call, op);
  return submit(comm, call);
}

ncclResult_t run(const char* function, const Arguments& a) {
  return guard(function, [&] {
    const Call call = checked_call(a);
    return submit_logged(function, *a.comm, call, a.op == nullptr ? 0 : static_cast<int>(*a.op));
  });
}

ncclResult_t run_send_recv(const char* function, bool sends, const void* sendbuff, void* recvbuff,
                           size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                           cudaStream_t stream) {
  return guard(function, [&] {
    check_handle(comm);
    check_type(type);
    check_rank("peer", peer, *comm);
    check_count("count", count, type, 1);
    if (count > 0) check_pointer(sends ? "sendbuff" : "recvbuff", sends ? sendbuff : recvbuff);
    Call call;
    call.kind = CollectiveKind::kSendRecv;
    call.input = sendbuff;
    call.output = recvbuff;
    call.count = count;
    call.reduction.type = type;
    call.root = peer;
    call.sends = sends;
    call.stream = stream;
    return submit_logged(function, *comm, call, 0);
  });
}

}  // namespace

WEFT_EXPORT(ncclResult_t, AllReduce,
            (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
             ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)) {
  return run("ncclAllReduce", {CollectiveKind::kAllReduce, sendbuff, recvbuff, count, datatype,
                               comm, stream, "count", 0, &op});
}

WEFT_EXPORT(ncclResult_t, Reduce,
            (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
             ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)) {
  return run("ncclReduce", {CollectiveKind::kReduce, sendbuff, recvbuff, count, datatype, comm,
                            stream, "count", root, &op});
}

WEFT_EXPORT(ncclResult_t, ReduceScatter,
            (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
             ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)) {
  return run("ncclReduceScatter", {CollectiveKind::kReduceScatter, sendbuff, recvbuff, recvcount,
                                   datatype, comm, stream, "recvcount", 0, &op});
}

WEFT_EXPORT(ncclResult_t, Broadcast,
            (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
             ncclComm_t comm, cudaStream_t stream)) {
  return run("ncclBroadcast", {CollectiveKind::kBroadcast, sendbuff, recvbuff, count, datatype,
                               comm, stream, "count", root});
}

WEFT_EXPORT(ncclResult_t, Bcast,
            (void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
             cudaStream_t stream)) {
  if (buff == nullptr && count > 0) return report("ncclBcast", ncclInvalidArgument, "buff is NULL");
  return run("ncclBcast", {CollectiveKind::kBroadcast, buff, buff, count, datatype, comm, stream,
                           "count", root});
}

WEFT_EXPORT(ncclResult_t, AllGather,
            (const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
             ncclComm_t comm, cudaStream_t stream)) {
  return run("ncclAllGather", {CollectiveKind::kAllGather, sendbuff, recvbuff, sendcount, datatype,
                               comm, stream, "sendcount"});
}

WEFT_EXPORT(ncclResult_t, AlltoAll,
            (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
             ncclComm_t comm, cudaStream_t stream)) {
  return run("ncclAlltoAll",
             {CollectiveKind::kAllToAll, sendbuff, recvbuff, count, datatype, comm, stream});
}

WEFT_EXPORT(ncclResult_t, Gather,
            (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
             ncclComm_t comm, cudaStream_t stream)) {
  return run("ncclGather", {CollectiveKind::kGather, sendbuff, recvbuff, count, datatype, comm,
                            stream, "count", root});
}

WEFT_EXPORT(ncclResult_t, Scatter,
            (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
             ncclComm_t comm, cudaStream_t stream)) {
  return run("ncclScatter", {CollectiveKind::kScatter, sendbuff, recvbuff, count, datatype, comm,
                             stream, "count", root});
}

WEFT_EXPORT(ncclResult_t, Send,
            (const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
             cudaStream_t stream)) {
  return run_send_recv("ncclSend", true, sendbuff, nullptr, count, datatype, peer, comm, stream);
}

WEFT_EXPORT(ncclResult_t, Recv,
            (void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
             cudaStream_t stream)) {
  return run_send_recv("ncclRecv", false, nullptr, recvbuff, count, datatype, peer, comm, stream);
}

}  // namespace weft::api
