// Communicators: init, split, shrink, queries, finalize, destroy, abort.
#include <cstring>
#include <set>
#include <vector>

#include "src/api/checks.h"
#include "src/api/guard.h"
#include "src/comm/lifecycle.h"

namespace weft::api {
namespace {

ncclResult_t init(const char* function, ncclComm_t* comm, int nranks, const ncclUniqueId& commId,
                  int rank, const ncclConfig_t* config) {
  return guard(function, [&] {
    check_pointer("comm", comm);
    *comm = nullptr;
    check_size(nranks, rank, "rank");
    return init_rank(comm, read_id("commId", commId), rank, nranks, CommConfig::from(config),
                     function);
  });
}

}  // namespace

WEFT_EXPORT(ncclResult_t, GetUniqueId, (ncclUniqueId * uniqueId)) {
  return guard("ncclGetUniqueId", [&] {
    check_pointer("uniqueId", uniqueId);
    const UniqueId id = UniqueId::create();
    std::memcpy(uniqueId, &id, sizeof id);
  });
}

WEFT_EXPORT(ncclResult_t, CommInitRank,
            (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank)) {
  return init("ncclCommInitRank", comm, nranks, commId, rank, nullptr);
}

WEFT_EXPORT(ncclResult_t, CommInitRankConfig,
            (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config)) {
  return init("ncclCommInitRankConfig", comm, nranks, commId, rank, config);
}

WEFT_EXPORT(ncclResult_t, CommInitRankScalable,
            (ncclComm_t * newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds,
             ncclConfig_t* config)) {
  return guard("ncclCommInitRankScalable", [&] {
    check_pointer("newcomm", newcomm);
    *newcomm = nullptr;
    check_size(nranks, myrank, "myrank");
    if (nId < 1 || nId > nranks)
      fail(ncclInvalidArgument, "nId is {}, it must be in 1..{}", nId, nranks);
    check_pointer("commIds", commIds);
    std::vector<UniqueId> ids;
    std::set<Secret> different;
    for (int i = 0; i < nId; i++) {
      ids.push_back(read_id("commIds", commIds[i]));
      if (!different.insert(ids.back().secret).second && ids.back().fixed == 0)
        fail(ncclInvalidArgument, "commIds[{}] is there twice", i);
    }
    // NCCL_COMM_ID makes all ids one.
    const Branch branch = ids[0].fixed != 0 ? Branch{} : branch_of(ids, myrank, nranks);
    return init_rank(newcomm, ids[0], myrank, nranks, CommConfig::from(config),
                     "ncclCommInitRankScalable", branch);
  });
}

WEFT_EXPORT(ncclResult_t, CommInitAll, (ncclComm_t * comm, int ndev, const int* devlist)) {
  return guard("ncclCommInitAll", [&] {
    check_pointer("comm", comm);
    if (ndev < 1) fail(ncclInvalidArgument, "ndev is {}", ndev);
    for (int i = 0; devlist != nullptr && i < ndev; i++)
      if (devlist[i] < 0) fail(ncclInvalidArgument, "devlist[{}] is {}", i, devlist[i]);
    const UniqueId id = UniqueId::create();
    const CommConfig config = CommConfig::from(nullptr);
    group_start();
    for (int i = 0; i < ndev; i++) {
      init_rank(&comm[i], id, i, ndev, config, "ncclCommInitAll");
      comm[i]->device = devlist != nullptr ? devlist[i] : i;
    }
    return group_end();
  });
}

WEFT_EXPORT(ncclResult_t, CommSplit,
            (ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config)) {
  return guard("ncclCommSplit", [&] {
    check_handle(comm);
    check_pointer("newcomm", newcomm);
    *newcomm = nullptr;
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
      fail(ncclInvalidArgument, "color is {}, it must not be negative (or be NCCL_SPLIT_NOCOLOR)",
           color);
    return split(*comm, color, key, newcomm, config);
  });
}

WEFT_EXPORT(ncclResult_t, CommShrink,
            (ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm,
             ncclConfig_t* config, int shrinkFlags)) {
  return guard("ncclCommShrink", [&] {
    check_handle(comm);
    check_pointer("newcomm", newcomm);
    *newcomm = nullptr;
    if (excludeRanksCount < 0)
      fail(ncclInvalidArgument, "excludeRanksCount is {}", excludeRanksCount);
    if (excludeRanksCount > 0) check_pointer("excludeRanksList", excludeRanksList);
    if (shrinkFlags != NCCL_SHRINK_DEFAULT && shrinkFlags != NCCL_SHRINK_ABORT)
      fail(ncclInvalidArgument, "shrinkFlags is {:#x}", shrinkFlags);
    std::vector<int> excluded;
    for (int i = 0; i < excludeRanksCount; i++) {
      check_rank("excludeRanksList", excludeRanksList[i], *comm);
      if (excludeRanksList[i] == comm->rank)
        fail(ncclInvalidArgument,
             "excludeRanksList holds the calling rank {}: only the ranks that stay call this",
             comm->rank);
      excluded.push_back(excludeRanksList[i]);
    }
    return shrink(*comm, excluded, newcomm, config, shrinkFlags == NCCL_SHRINK_ABORT);
  });
}

WEFT_EXPORT(ncclResult_t, CommFinalize, (ncclComm_t comm)) {
  if (comm == nullptr) return ncclSuccess;
  return guard("ncclCommFinalize", [&] {
    check_handle(comm);
    return finalize(*comm);
  });
}

WEFT_EXPORT(ncclResult_t, CommDestroy, (ncclComm_t comm)) {
  if (comm == nullptr) return ncclSuccess;
  return guard("ncclCommDestroy", [&] {
    check_handle(comm);
    destroy(*comm);
  });
}

WEFT_EXPORT(ncclResult_t, CommAbort, (ncclComm_t comm)) {
  if (comm == nullptr) return ncclSuccess;
  return guard("ncclCommAbort", [&] {
    check_handle(comm);
    abort(*comm);
  });
}

WEFT_EXPORT(ncclResult_t, CommRevoke, (ncclComm_t comm, int revokeFlags)) {
  return guard("ncclCommRevoke", [&] {
    check_handle(comm);
    if (revokeFlags != NCCL_REVOKE_DEFAULT)
      fail(ncclInvalidArgument, "revokeFlags is {:#x}, it must be 0", revokeFlags);
    revoke(*comm);
  });
}

WEFT_EXPORT(ncclResult_t, CommGetAsyncError, (ncclComm_t comm, ncclResult_t* asyncError)) {
  return guard("ncclCommGetAsyncError", [&] {
    check_handle(comm);
    check_pointer("asyncError", asyncError);
    *asyncError = async_error(*comm);
  });
}

WEFT_EXPORT(ncclResult_t, CommCount, (const ncclComm_t comm, int* count)) {
  return guard("ncclCommCount", [&] {
    check_handle(comm);
    check_pointer("count", count);
    check_up(*comm);
    *count = comm->nranks;
  });
}

WEFT_EXPORT(ncclResult_t, CommCuDevice, (const ncclComm_t comm, int* device)) {
  return guard("ncclCommCuDevice", [&] {
    check_handle(comm);
    check_pointer("device", device);
    check_up(*comm);
    *device = comm->device;
  });
}

WEFT_EXPORT(ncclResult_t, CommUserRank, (const ncclComm_t comm, int* rank)) {
  return guard("ncclCommUserRank", [&] {
    check_handle(comm);
    check_pointer("rank", rank);
    check_up(*comm);
    *rank = comm->rank;
  });
}

}  // namespace weft::api
