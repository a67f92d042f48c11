// The device API in host mode: there are no kernels, so communicators of kernels are refused. The
// functions that only compute work.
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
  EXPECT_NE(std::string(ncclGetLastError(set[0])).find("host mode"), std::string::npos);
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
  EXPECT_EQ(ncclLLA2ACalcSlots(128, 9), 256);
  Blob handle;
  Blob requirements;
  EXPECT_EQ(ncclGinBarrierCreateRequirement(set[1], world, 1, &handle, &requirements),
            ncclInvalidUsage);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("no GIN"), std::string::npos);
}

// The layouts of NCCL's headers.
struct Handle {
  uint32_t buffer;
  int32_t count;
};
struct Requirement {
  void* next;
  size_t bytes, align;
  uint32_t* handle;
  int signals, counters;
  uint32_t *first_signal, *first_counter;
};

TEST(DeviceApi, RequirementsSayHowMuchMemoryIsNeeded) {
  Handle handle{};
  Requirement wanted{};
  WEFT_OK(ncclLsaBarrierCreateRequirement({8, 3, 1}, 5, &handle, &wanted));
  EXPECT_EQ(wanted.bytes, (3 * 5 + 5 * 8) * 4u);
  EXPECT_EQ(wanted.handle, &handle.buffer);
  EXPECT_EQ(handle.count, 5);
  WEFT_OK(ncclLLA2ACreateRequirement(3, 16, &handle, &wanted));
  EXPECT_EQ(wanted.bytes, 3 * (1 + 2 * 16) * 16u);
  EXPECT_EQ(wanted.align, 16u);
  EXPECT_EQ(handle.count, 16);
  EXPECT_EQ(ncclLsaBarrierCreateRequirement({8, 3, 1}, -1, &handle, &wanted), ncclInvalidArgument);
}

// Requirements as the headers of 2.28 have them, and those of 2.29 and later behind a head.
struct Wanted {
  void *resources = nullptr, *teams = nullptr;
  bool multimem = false;
  int barriers = 0, lsa_barriers = 0, rail_barriers = 0, blocks = 0, slots = 0;
  bool gin = false;
  int contexts = 0, signals = 0, counters = 0;
};
struct VersionedWanted {
  size_t size = sizeof(VersionedWanted);
  unsigned magic = 0xcafebeef, version = 23007;
  Wanted body;
  int connection = 0, rest[7] = {};
};

TEST(DeviceApi, GinAndMultimemAreRefusedWithAText) {
  CommSet set(1);
  Blob device_comm;
  const auto text_of = [&](const void* wanted) {
    EXPECT_EQ(ncclDevCommCreate(set[0], wanted, &device_comm), ncclInvalidUsage);
    return std::string(ncclGetLastError(set[0]));
  };
  Wanted old;
  old.multimem = true;
  EXPECT_NE(text_of(&old).find("no multimem"), std::string::npos);
  old = {};
  old.signals = 1;
  EXPECT_NE(text_of(&old).find("no GIN"), std::string::npos);
  old = {};
  old.barriers = 1;  // for one host, then
  EXPECT_NE(text_of(&old).find("host mode"), std::string::npos);
  VersionedWanted wanted;
  wanted.body.barriers = 1;
  EXPECT_NE(text_of(&wanted).find("no GIN"), std::string::npos);
  wanted.version = 22902;
  EXPECT_NE(text_of(&wanted).find("host mode"), std::string::npos);
  wanted = {};
  wanted.connection = 1;
  EXPECT_NE(text_of(&wanted).find("no GIN"), std::string::npos);
  wanted = {};
  wanted.version = 23100;
  EXPECT_NE(text_of(&wanted).find("23100"), std::string::npos);
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
