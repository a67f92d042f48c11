// Collectives in parts, calls that run in the background, and alltoallv: see weft.h.
#include "src/comm/parts.h"

#include <memory>

#include "include/weft.h"
#include "src/api/checks.h"
#include "src/api/collective_call.h"
#include "src/api/guard.h"
#include "src/comm/group.h"
#include "src/comm/irregular.h"
#include "src/comm/started_calls.h"

struct weftRequest : weft::StartedCalls {
  using StartedCalls::StartedCalls;
};

namespace weft::api {
namespace {

void check_parts(int parts) {
  if (parts < 1 || parts > kMostParts)
    fail(ncclInvalidArgument, "parts is {}, it must be in 1..{}", parts, kMostParts);
}

struct Partition {
  int parts;
  const unsigned* ready;
  unsigned* done;
};

std::vector<Call> checked_parts(const char* function, const char* collective, Arguments a,
                                const ncclRedOp_t& op, const Partition& p) {
  check_pointer("collective", collective);
  const auto kind = parse_collective(collective);
  if (!kind || *kind == CollectiveKind::kSendRecv)
    fail(ncclInvalidArgument, "collective: '{}' is none", collective);
  a.kind = *kind;
  check_handle(a.comm);
  if (Collective{*kind, a.comm->nranks, 0}.reduces()) a.op = &op;
  check_parts(p.parts);
  const Call call = checked_call(a);
  log_call(function, *a.comm, call, a.op == nullptr ? 0 : static_cast<int>(op));
  return parts_of(call, p.parts, p.ready, p.done);
}

std::vector<Irregular::Block> checked_blocks(const char* const (&names)[2], const void* buffer,
                                             const size_t* counts, const size_t* displs,
                                             ncclDataType_t type, int nranks) {
  check_pointer(names[1], counts);
  std::vector<Irregular::Block> blocks;
  size_t next = 0, bytes = 0;
  const size_t element = element_size(type);
  for (int r = 0; r < nranks; r++) {
    const size_t at = displs == nullptr ? next : displs[r], count = counts[r];
    size_t end = 0;
    if (__builtin_add_overflow(at, count, &end) || __builtin_mul_overflow(end, element, &bytes) ||
        bytes > SIZE_MAX / 2)
      fail(ncclInvalidArgument, "{}[{}] is {}: that many elements do not fit in memory", names[1],
           r, count);
    if (count > 0) check_pointer(names[0], buffer);
    next = end;
    blocks.push_back(
        {count == 0 ? nullptr : static_cast<std::byte*>(const_cast<void*>(buffer)) + at * element,
         count});
  }
  return blocks;
}

}  // namespace
}  // namespace weft::api

extern "C" {

[[gnu::visibility("default")]] ncclResult_t weftPart(size_t count, ncclDataType_t datatype,
                                                     int parts, int part, size_t* begin,
                                                     size_t* length) {
  return weft::api::guard("weftPart", [&] {
    weft::api::check_type(datatype);
    weft::api::check_parts(parts);
    if (part < 0 || part >= parts)
      weft::fail(ncclInvalidArgument, "part is {}, it must be in 0..{}", part, parts - 1);
    weft::api::check_pointer("begin", begin);
    weft::api::check_pointer("length", length);
    const weft::PartRange range =
        weft::part_range(count, weft::element_size(datatype), parts, part);
    *begin = range.begin;
    *length = range.count;
  });
}

[[gnu::visibility("default")]] ncclResult_t weftPartitioned(ncclComm_t comm, const char* collective,
                                                            const void* sendbuff, void* recvbuff,
                                                            size_t count, ncclDataType_t datatype,
                                                            ncclRedOp_t op, int root, int parts,
                                                            const unsigned* ready, unsigned* done,
                                                            cudaStream_t stream) {
  return weft::api::guard("weftPartitioned", [&] {
    const std::vector<weft::Call> calls = weft::api::checked_parts(
        "weftPartitioned", collective,
        {{}, sendbuff, recvbuff, count, datatype, comm, stream, "count", root}, op,
        {parts, ready, done});
    return weft::submit(*comm, calls);
  });
}

[[gnu::visibility("default")]] ncclResult_t weftStart(ncclComm_t comm, const char* collective,
                                                      const void* sendbuff, void* recvbuff,
                                                      size_t count, ncclDataType_t datatype,
                                                      ncclRedOp_t op, int root, int parts,
                                                      const unsigned* ready, unsigned* done,
                                                      weftRequest_t* request) {
  return weft::api::guard("weftStart", [&] {
    weft::api::check_pointer("request", request);
    *request = nullptr;
    std::vector<weft::Call> calls = weft::api::checked_parts(
        "weftStart", collective,
        {{}, sendbuff, recvbuff, count, datatype, comm, nullptr, "count", root}, op,
        {parts, ready, done});
    *request = std::make_unique<weftRequest>(*comm, std::move(calls)).release();
  });
}

[[gnu::visibility("default")]] ncclResult_t weftWait(weftRequest_t request) {
  return weft::api::guard("weftWait", [&] {
    weft::api::check_pointer("request", request);
    request->check_process();
    const std::unique_ptr<weftRequest> own(request);
    own->wait();
  });
}

[[gnu::visibility("default")]] ncclResult_t weftAllToAllv(
    const void* sendbuff, const size_t* sendcounts, const size_t* sdispls, void* recvbuff,
    const size_t* recvcounts, const size_t* rdispls, ncclDataType_t datatype, ncclComm_t comm,
    int parts, const unsigned* ready, unsigned* done, cudaStream_t stream) {
  return weft::api::guard("weftAllToAllv", [&] {
    weft::check_handle(comm);
    weft::api::check_type(datatype);
    weft::api::check_parts(parts);
    const char* const send_names[] = {"sendbuff", "sendcounts"};
    const char* const receive_names[] = {"recvbuff", "recvcounts"};
    auto blocks = std::make_shared<weft::Irregular>();
    blocks->sends = weft::api::checked_blocks(send_names, sendbuff, sendcounts, sdispls, datatype,
                                              comm->nranks);
    blocks->receives = weft::api::checked_blocks(receive_names, recvbuff, recvcounts, rdispls,
                                                 datatype, comm->nranks);
    if (sendcounts[comm->rank] != recvcounts[comm->rank])
      weft::fail(ncclInvalidArgument,
                 "rank {} sends {} elements to itself (sendcounts) and receives {} (recvcounts)",
                 comm->rank, sendcounts[comm->rank], recvcounts[comm->rank]);
    if (sendbuff == recvbuff && sendbuff != nullptr && comm->nranks > 1)
      weft::fail(ncclInvalidArgument, "sendbuff and recvbuff are the same");
    weft::Call call;
    call.kind = weft::CollectiveKind::kAllToAllV;
    call.input = sendbuff;
    call.output = recvbuff;
    call.reduction.type = datatype;
    call.stream = stream;
    for (const weft::Irregular::Block& block : blocks->sends) call.count += block.count;
    call.irregular = std::move(blocks);
    weft::api::log_call("weftAllToAllv", *comm, call, 0);
    return weft::submit(*comm, weft::parts_of_exchange(call, parts, ready, done));
  });
}
}
