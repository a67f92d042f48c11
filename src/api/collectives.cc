// The collectives and point-to-point calls: check arguments, submit.
#include <cstring>

#include "src/api/checks.h"
#include "src/api/guard.h"
#include "src/comm/group.h"

namespace weft::api {
namespace {

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

// The line that NCCL writes for every call. Tools read it.
ncclResult_t submit_logged(const char* function, ncclComm& comm, const Call& call, int op) {
  const uint64_t number = comm.calls.fetch_add(1, std::memory_order_relaxed);
  WEFT_INFO(kColl,
            "{}: opCount {:x} sendbuff {} recvbuff {} count {} datatype {} op {} root {} comm {} "
            "[nranks={}] stream {}",
            function + std::strlen("nccl"), number, call.input, call.output, call.count,
            static_cast<int>(call.reduction.type), op, call.root, fmt::ptr(&comm), comm.nranks,
            fmt::ptr(call.stream));
  return submit(comm, call);
}

ncclResult_t run(const char* function, const Arguments& a) {
  return guard(function, [&] {
    check_handle(a.comm);
    check_type(a.type);
    const Collective collective{a.kind, a.comm->nranks, a.root};
    if (collective.rooted()) check_rank("root", a.root, *a.comm);
    const int in_blocks = collective.input_blocks(a.comm->rank),
              out_blocks = collective.output_blocks(a.comm->rank);
    check_count(a.count_name, a.count, a.type, std::max({in_blocks, out_blocks, 1}));
    if (a.count > 0 && in_blocks > 0) check_pointer("sendbuff", a.sendbuff);
    if (a.count > 0 && out_blocks > 0) check_pointer("recvbuff", a.recvbuff);
    Call call;
    call.kind = a.kind;
    call.input = a.sendbuff;
    call.output = a.recvbuff;
    call.count = a.count;
    call.stream = a.stream;
    call.root = collective.rooted() ? a.root : 0;
    call.reduction.type = a.type;
    if (a.op != nullptr) call.reduction = reduction_of(*a.comm, *a.op, a.type);
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
