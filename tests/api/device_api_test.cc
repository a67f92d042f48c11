// Weft has no device API. Its calls return an error that names an alternative, and never crash.
#include <gtest/gtest.h>

#include "tests/comm/checks.h"
#include "tests/support/threads.h"

namespace {
// The layout is that of NCCL's nccl_device headers.
struct Team {
  int nranks;
  int rank;
  int stride;
};
}  // namespace

extern "C" {
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void* requirements, void* device_comm);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const void* device_comm);
Team ncclTeamWorld(ncclComm_t comm);
Team ncclTeamLsa(ncclComm_t comm);
Team ncclTeamRail(ncclComm_t comm);
int ncclTeamRankToWorld(ncclComm_t comm, Team team, int rank);
int ncclTeamRankToLsa(ncclComm_t comm, Team team, int rank);
int ncclLLA2ACalcSlots(int max_elements, int max_element_size);
ncclResult_t ncclLLA2ACreateRequirement(int blocks, int slots, void* handle, void* requirements);
ncclResult_t ncclLsaBarrierCreateRequirement(Team team, int barriers, void* handle,
                                             void* requirements);
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, Team team, int barriers, void* handle,
                                             void* requirements);
}

namespace weft::test {
namespace {

// Larger than any of the device API's structures.
struct Blob {
  char bytes[4096] = {};
};

TEST(DeviceApi, DevCommCreateIsAnErrorWithText) {
  CommSet set(2);
  Blob requirements;
  Blob device_comm;
  EXPECT_NE(ncclDevCommCreate(set[0], &requirements, &device_comm), ncclSuccess);
  EXPECT_NE(std::string(ncclGetLastError(set[0])).find("use the host calls"), std::string::npos);
  EXPECT_NE(ncclDevCommCreate(nullptr, nullptr, nullptr), ncclSuccess);
  ncclDevCommDestroy(set[0], &device_comm);
  ncclDevCommDestroy(nullptr, nullptr);
  run_threads(2, [&](int r) { expect_all_reduce_works(set[r]); });
}

TEST(DeviceApi, TeamsAndRequirementsDoNotCrash) {
  CommSet set(2);
  const Team world = ncclTeamWorld(set[1]);
  ncclTeamLsa(set[1]);
  ncclTeamRail(set[1]);
  ncclTeamRankToWorld(set[1], world, 0);
  ncclTeamRankToLsa(set[1], world, 0);
  ncclLLA2ACalcSlots(128, 8);
  Blob handle;
  Blob requirements;
  for (const ncclResult_t result :
       {ncclLLA2ACreateRequirement(1, 16, &handle, &requirements),
        ncclLsaBarrierCreateRequirement(world, 1, &handle, &requirements),
        ncclGinBarrierCreateRequirement(set[1], world, 1, &handle, &requirements)}) {
    EXPECT_NE(result, ncclSuccess);
    EXPECT_STRNE(ncclGetLastError(nullptr), "");
  }
}

TEST(DeviceApi, ToleratesNullAndStaleCommunicators) {
  ncclTeamWorld(nullptr);
  ncclTeamLsa(nullptr);
  ncclTeamRail(nullptr);
  ncclTeamRankToWorld(nullptr, Team{}, 0);
  ncclTeamRankToLsa(nullptr, Team{}, 0);
  ncclComm_t comm = nullptr;
  WEFT_OK(ncclCommInitRank(&comm, 1, new_unique_id(), 0));
  WEFT_OK(ncclCommDestroy(comm));
  ncclTeamWorld(comm);
  Blob blob;
  EXPECT_NE(ncclDevCommCreate(comm, &blob, &blob), ncclSuccess);
}

}  // namespace
}  // namespace weft::test
