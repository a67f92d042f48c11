// See collective_call.h.
#include "src/api/collective_call.h"

#include <cstring>

#include "src/api/checks.h"
#include "src/base/log.h"

namespace weft::api {

void log_call(const char* function, ncclComm& comm, const Call& call, int op) {
  // One thread at a time makes calls.
  const uint64_t number = comm.calls.load(std::memory_order_relaxed);
  comm.calls.store(number + 1, std::memory_order_relaxed);
  WEFT_INFO(kColl,
            "{}: opCount {:x} sendbuff {} recvbuff {} count {} datatype {} op {} root {} comm {} "
            "[nranks={}] stream {}",
            function + std::strlen("nccl"), number, call.input, call.output, call.count,
            static_cast<int>(call.reduction.type), op, call.root, fmt::ptr(&comm), comm.nranks,
            fmt::ptr(call.stream));
}

Call checked_call(const Arguments& a) {
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
  return call;
}

}  // namespace weft::api
