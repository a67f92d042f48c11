// ncclCommGetUniqueId and ncclCommGrow: new ranks join the ranks of a communicator.
#include <cstring>

#include "src/api/checks.h"
#include "src/api/guard.h"
#include "src/comm/lifecycle.h"

namespace weft::api {

WEFT_EXPORT(ncclResult_t, CommGetUniqueId, (ncclComm_t comm, ncclUniqueId* uniqueId)) {
  return guard("ncclCommGetUniqueId", [&] {
    check_handle(comm);
    check_pointer("uniqueId", uniqueId);
    const UniqueId id = grow_id(*comm);
    std::memcpy(uniqueId, &id, sizeof id);
  });
}

WEFT_EXPORT(ncclResult_t, CommGrow,
            (ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank,
             ncclComm_t* newcomm, ncclConfig_t* config)) {
  return guard("ncclCommGrow", [&] {
    check_pointer("newcomm", newcomm);
    *newcomm = nullptr;
    if (nRanks < 1) fail(ncclInvalidArgument, "nRanks is {}", nRanks);
    if (comm == nullptr) {
      check_pointer("uniqueId", uniqueId);
      check_size(nRanks, rank, "rank");
      return init_rank(newcomm, read_id("uniqueId", *uniqueId), rank, nRanks,
                       CommConfig::from(config), "ncclCommGrow");
    }
    check_handle(comm);
    if (nRanks <= comm->nranks)
      fail(ncclInvalidArgument, "nRanks is {}, the communicator has {} ranks already", nRanks,
           comm->nranks);
    if (rank != -1)
      fail(ncclInvalidArgument, "rank is {}, existing ranks pass -1 and keep their ranks", rank);
    if (uniqueId == nullptr) return grow(*comm, nRanks, nullptr, newcomm, config);
    const UniqueId id = read_id("uniqueId", *uniqueId);
    return grow(*comm, nRanks, &id, newcomm, config);
  });
}

}  // namespace weft::api
