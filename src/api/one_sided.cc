// One-sided calls: writes into windows of other ranks, signals, and waits for signals.
#include <algorithm>

#include "src/api/checks.h"
#include "src/api/guard.h"
#include "src/comm/group.h"

namespace weft::api {
namespace {

void check_zero(const char* name, unsigned value) {
  if (value != 0) fail(ncclInvalidArgument, "{} is {}, it must be 0", name, value);
}

OneSidedCall::Wait wait_of(const ncclComm& comm, const ncclWaitSignalDesc_t& desc) {
  check_rank("peer", desc.peer, comm);
  if (desc.opCnt <= 0) fail(ncclInvalidArgument, "opCnt is {}", desc.opCnt);
  check_zero("sigIdx", static_cast<unsigned>(desc.sigIdx));
  check_zero("ctx", static_cast<unsigned>(desc.ctx));
  return {desc.peer, static_cast<uint64_t>(desc.opCnt)};
}

}  // namespace

WEFT_EXPORT(ncclResult_t, PutSignal,
            (const void* localbuff, size_t count, ncclDataType_t datatype, int peer,
             ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned flags,
             ncclComm_t comm, cudaStream_t stream)) {
  return guard("ncclPutSignal", [&] {
    check_handle(comm);
    check_type(datatype);
    check_rank("peer", peer, *comm);
    check_count("count", count, datatype, 1);
    check_pointer("peerWin", peerWin);
    if (count > 0) check_pointer("localbuff", localbuff);
    check_zero("sigIdx", static_cast<unsigned>(sigIdx));
    check_zero("ctx", static_cast<unsigned>(ctx));
    check_zero("flags", flags);
    OneSidedCall call;
    call.source = localbuff;
    call.bytes = count * element_size(datatype);
    call.peer = peer;
    call.window = peerWin;
    call.offset = peerWinOffset;
    call.stream = stream;
    return submit(*comm, std::move(call));
  });
}

WEFT_EXPORT(ncclResult_t, Signal,
            (int peer, int sigIdx, int ctx, unsigned flags, ncclComm_t comm, cudaStream_t stream)) {
  return guard("ncclSignal", [&] {
    check_handle(comm);
    check_rank("peer", peer, *comm);
    check_zero("sigIdx", static_cast<unsigned>(sigIdx));
    check_zero("ctx", static_cast<unsigned>(ctx));
    check_zero("flags", flags);
    OneSidedCall call;
    call.peer = peer;
    call.stream = stream;
    return submit(*comm, std::move(call));
  });
}

WEFT_EXPORT(ncclResult_t, WaitSignal,
            (int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream)) {
  return guard("ncclWaitSignal", [&] {
    check_handle(comm);
    check_pointer("signalDescs", signalDescs);
    if (nDesc <= 0) fail(ncclInvalidArgument, "nDesc is {}", nDesc);
    OneSidedCall call;
    call.kind = OneSidedCall::Kind::kWait;
    call.stream = stream;
    for (int i = 0; i < nDesc; i++) {
      const OneSidedCall::Wait wait = wait_of(*comm, signalDescs[i]);
      const auto same = std::find_if(call.waits.begin(), call.waits.end(),
                                     [&](const auto& other) { return other.peer == wait.peer; });
      if (same == call.waits.end()) {
        call.waits.push_back(wait);
      } else {
        same->signals += wait.signals;
      }
    }
    return submit(*comm, std::move(call));
  });
}

}  // namespace weft::api
