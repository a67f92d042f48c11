// Teams: every stride-th rank around the caller. Ranks of a team count from 0.
#include "include/nccl_device.h"
#include "src/api/guard.h"
#include "src/comm/handle.h"
#include "src/comm/one_sided.h"

namespace weft::api {
namespace {

ncclTeam world(const ncclComm* comm) {
  return comm != nullptr && comm->magic == ncclComm::kMagic ? ncclTeam{comm->nranks, comm->rank, 1}
                                                            : ncclTeam{0, 0, 0};
}

// The ranks of the caller's LSA team, whose kernels reach each other's memory.
ncclTeam lsa(ncclComm* comm) {
  if (comm == nullptr || comm->magic != ncclComm::kMagic) return {1, 0, 1};
  try {
    const Use use(*comm, false);
    const Windows& windows = use->one_sided().windows();
    return {windows.lsa_size(), windows.lsa_rank(), 1};
  } catch (const Error&) {
    return {1, 0, 1};  // it is not up, or not any more
  }
}

// The distance in world ranks from the caller to a rank of its team.
int distance(const ncclTeam& team, int rank) { return (rank - team.rank) * team.stride; }

}  // namespace

WEFT_EXPORT(ncclTeam_t, TeamWorld, (ncclComm_t comm)) { return world(comm); }
WEFT_EXPORT(ncclTeam_t, TeamLsa, (ncclComm_t comm)) { return lsa(comm); }
// The ranks at the caller's place in all LSA teams.
WEFT_EXPORT(ncclTeam_t, TeamRail, (ncclComm_t comm)) {
  const ncclTeam all = world(comm), inner = lsa(comm);
  return {all.nRanks / inner.nRanks, all.rank / inner.nRanks, all.stride * inner.nRanks};
}

WEFT_EXPORT(int, TeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank)) {
  return world(comm).rank + distance(team, rank);
}
WEFT_EXPORT(int, TeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank)) {
  return lsa(comm).rank + distance(team, rank);
}

// Whether rank `bPeer` of team b is in team a. A team with stride 0 is empty.
WEFT_EXPORT(bool, TeamRankIsMember, (ncclTeam_t a, ncclTeam_t b, int bPeer)) {
  if (a.stride == 0 || distance(b, bPeer) % a.stride != 0) return false;
  const int rank = a.rank + distance(b, bPeer) / a.stride;
  return rank >= 0 && rank < a.nRanks;
}

// The rank in team a of rank `bPeer` of team b, which must be in both.
WEFT_EXPORT(int, TeamRankToTeam, (ncclTeam_t a, ncclTeam_t b, int bPeer)) {
  return a.stride == 0 ? -1 : a.rank + distance(b, bPeer) / a.stride;
}

// The caller's block of `innerSize` ranks.
WEFT_EXPORT(ncclTeam_t, TeamInnerFactor, (ncclTeam_t parent, int innerSize)) {
  if (innerSize < 1) return {0, 0, 0};
  return {innerSize, parent.rank % innerSize, parent.stride};
}

// The ranks at the caller's place in all blocks of `innerSize` ranks.
WEFT_EXPORT(ncclTeam_t, TeamOuterFactor, (ncclTeam_t parent, int innerSize)) {
  if (innerSize < 1) return {0, 0, 0};
  return {parent.nRanks / innerSize, parent.rank / innerSize, parent.stride * innerSize};
}

// The index-th rank of `parent` that is not in `subset`.
WEFT_EXPORT(int, TeamRankInDifference, (ncclTeam_t parent, ncclTeam_t subset, int index)) {
  if (parent.stride == 0 || subset.nRanks < 1) return index;
  // The subset's members are first, first + step, ... as ranks of the parent.
  int step = subset.stride / parent.stride;
  int first = parent.rank - subset.rank * step;
  if (step < 0) {
    first += (subset.nRanks - 1) * step;
    step = -step;
  }
  if (index < first) return index;
  const int between = (subset.nRanks - 1) * (step - 1);  // ranks in the gaps of the subset
  if (index - first >= between) return index + subset.nRanks;
  return index + 1 + (index - first) / (step - 1);
}

}  // namespace weft::api
