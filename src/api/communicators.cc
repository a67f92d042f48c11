// Communicators: init, split, shrink, queries, finalize, destroy, abort.
#include <cstring>

#include "src/api/checks.h"
#include "src/api/guard.h"
#include "src/comm/lifecycle.h"

namespace weft::api {
namespace {

UniqueId read_id(const ncclUniqueId& raw) {
  UniqueId id;
  std::memcpy(static_cast<void*>(&id), &raw, sizeof id);
  if (id.magic != UniqueId::kMagic || id.version != 1 ||
      id.address_count > UniqueId::kMostAddresses)
    fail(ncclInvalidArgument, "commId was not made by this library's ncclGetUniqueId");
  return id;
}

void check_size(int nranks, int rank, const char* rank_name) {
  if (nranks < 1) fail(ncclInvalidArgument, "nranks is {}", nranks);
  if (rank < 0 || rank >= nranks)
    fail(ncclInvalidArgument, "{} is {}, it must be in 0..{}", rank_name, rank, nranks - 1);
}

ncclResult_t init(const char* function, ncclComm_t* comm, int nranks, const ncclUniqueId& commId,
                  int rank, const ncclConfig_t* config) {
  return guard(function, [&] {
    check_pointer("comm", comm);
    *comm = nullptr;
    check_size(nranks, rank, "rank");
    return init_rank(comm, read_id(commId), rank, nranks, CommConfig::from(config));
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

// NCCL spreads the rendezvous over the processes of several ids. Weft uses the first id for all
// ranks.
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
    for (int i = 0; i < nId; i++) read_id(commIds[i]);
    return init_rank(newcomm, read_id(commIds[0]), myrank, nranks, CommConfig::from(config));
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
      init_rank(&comm[i], id, i, ndev, config);
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
  return guard("ncclCommFinalize", [&] {
    check_handle(comm);
    finalize(*comm);
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
    const Use use(*comm, false);
    *count = comm->nranks;
  });
}

WEFT_EXPORT(ncclResult_t, CommCuDevice, (const ncclComm_t comm, int* device)) {
  return guard("ncclCommCuDevice", [&] {
    check_handle(comm);
    check_pointer("device", device);
    const Use use(*comm, false);
    *device = comm->device;
  });
}

WEFT_EXPORT(ncclResult_t, CommUserRank, (const ncclComm_t comm, int* rank)) {
  return guard("ncclCommUserRank", [&] {
    check_handle(comm);
    check_pointer("rank", rank);
    const Use use(*comm, false);
    *rank = comm->rank;
  });
}

}  // namespace weft::api
