// Collectives in parts, and calls that run in the background: see weft.h.
#include "src/comm/parts.h"

#include <memory>

#include "include/weft.h"
#include "src/api/checks.h"
#include "src/api/collective_call.h"
#include "src/api/guard.h"
#include "src/comm/group.h"
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
    const std::unique_ptr<weftRequest> own(request);
    own->wait();
  });
}
}
