// ncclCommSuspend, ncclCommResume, ncclCommMemStats.
#include "src/comm/suspension.h"

#include "src/api/checks.h"
#include "src/api/guard.h"

namespace weft::api {

WEFT_EXPORT(ncclResult_t, CommSuspend, (ncclComm_t comm, int flags)) {
  return guard("ncclCommSuspend", [&] {
    check_handle(comm);
    if ((flags & ~NCCL_SUSPEND_MEM) != 0)
      fail(ncclInvalidArgument, "flags is {:#x}, NCCL_SUSPEND_MEM is known", flags);
    if (flags == 0) return ncclSuccess;
    return suspend(*comm);
  });
}

WEFT_EXPORT(ncclResult_t, CommResume, (ncclComm_t comm)) {
  return guard("ncclCommResume", [&] {
    check_handle(comm);
    return resume(*comm);
  });
}

WEFT_EXPORT(ncclResult_t, CommMemStats,
            (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value)) {
  return guard("ncclCommMemStats", [&] {
    check_handle(comm);
    check_pointer("value", value);
    *value = 0;
    *value = memory_statistic(*comm, stat);
  });
}

}  // namespace weft::api
