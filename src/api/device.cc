// The device API of NCCL 2.28, with which kernels communicate themselves. Weft does not support it.
// Every function that would create an object fails and names an alternative. Teams are plain
// arithmetic and work.
#include "src/api/checks.h"
#include "src/api/guard.h"

struct ncclTeam {
  int nRanks, rank, stride;
};
using ncclTeam_t = ncclTeam;

namespace weft::api {
namespace {

ncclResult_t refuse(const char* function) {
  return report(function, ncclInvalidUsage,
                "Weft has no device API, kernels cannot communicate by themselves: use the host "
                "calls (ncclAllReduce, ...; windows and registered buffers are used where they "
                "are), or in PyTorch the symmetric memory backend CUDA instead of NCCL");
}

ncclTeam world(const ncclComm* comm) {
  return comm != nullptr && comm->magic == ncclComm::kMagic ? ncclTeam{comm->nranks, comm->rank, 1}
                                                            : ncclTeam{0, 0, 0};
}

}  // namespace

WEFT_EXPORT(ncclResult_t, DevCommCreate, (ncclComm_t, const void*, void*)) {
  return refuse("ncclDevCommCreate");
}
WEFT_EXPORT(ncclResult_t, DevCommDestroy, (ncclComm_t, const void*)) {
  return refuse("ncclDevCommDestroy");
}
WEFT_EXPORT(ncclResult_t, LsaBarrierCreateRequirement, (ncclTeam_t, int, void*, void*)) {
  return refuse("ncclLsaBarrierCreateRequirement");
}
WEFT_EXPORT(ncclResult_t, GinBarrierCreateRequirement,
            (ncclComm_t, ncclTeam_t, int, void*, void*)) {
  return refuse("ncclGinBarrierCreateRequirement");
}
WEFT_EXPORT(ncclResult_t, LLA2ACreateRequirement, (int, int, void*, void*)) {
  return refuse("ncclLLA2ACreateRequirement");
}

// Slots have 16 bytes, 8 of them payload.
WEFT_EXPORT(int, LLA2ACalcSlots, (int maxElts, int maxEltSize)) {
  return maxElts * ((maxEltSize + 7) / 8);
}

WEFT_EXPORT(ncclTeam_t, TeamWorld, (ncclComm_t comm)) { return world(comm); }
// There is no load/store access here, so a rank is alone in its LSA team, and the rail team is the
// world.
WEFT_EXPORT(ncclTeam_t, TeamLsa, (ncclComm_t)) { return {1, 0, 1}; }
WEFT_EXPORT(ncclTeam_t, TeamRail, (ncclComm_t comm)) { return world(comm); }
WEFT_EXPORT(int, TeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank)) {
  return world(comm).rank + (rank - team.rank) * team.stride;
}
WEFT_EXPORT(int, TeamRankToLsa, (ncclComm_t, ncclTeam_t team, int rank)) {
  return (rank - team.rank) * team.stride;
}

}  // namespace weft::api
