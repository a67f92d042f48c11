// Bad arguments of communicator, memory and registration calls, and of configurations.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tests/api/rejected.h"
#include "tests/comm/checks.h"

namespace weft::test {
namespace {

TEST(BadInit, NullResultPointersAreRefused) {
  const ncclUniqueId id = new_unique_id();
  EXPECT_BAD_ARGUMENT("version", ncclGetVersion(nullptr));
  EXPECT_BAD_ARGUMENT("uniqueId", ncclGetUniqueId(nullptr));
  EXPECT_BAD_ARGUMENT("comm", ncclCommInitRank(nullptr, 1, id, 0));
  EXPECT_BAD_ARGUMENT("comm", ncclCommInitRankConfig(nullptr, 1, id, 0, nullptr));
  EXPECT_BAD_ARGUMENT("comm", ncclCommInitAll(nullptr, 1, nullptr));
  EXPECT_BAD_ARGUMENT("ptr", ncclMemAlloc(nullptr, 10));
  ncclUniqueId ids[1] = {id};
  EXPECT_BAD_ARGUMENT("newcomm", ncclCommInitRankScalable(nullptr, 1, 0, 1, ids, nullptr));
}

TEST(BadInit, RanksOutOfRangeAreRefused) {
  ncclComm_t comm = nullptr;
  const ncclUniqueId id = new_unique_id();
  EXPECT_BAD_ARGUMENT("nranks", ncclCommInitRank(&comm, 0, id, 0));
  EXPECT_BAD_ARGUMENT("nranks", ncclCommInitRank(&comm, -3, id, 0));
  EXPECT_BAD_ARGUMENT("rank", ncclCommInitRank(&comm, 2, id, 2));
  EXPECT_BAD_ARGUMENT("rank", ncclCommInitRank(&comm, 2, id, -1));
  EXPECT_BAD_ARGUMENT("ndev", ncclCommInitAll(&comm, -1, nullptr));
  ncclUniqueId ids[1] = {id};
  EXPECT_BAD_ARGUMENT("rank", ncclCommInitRankScalable(&comm, 2, 5, 1, ids, nullptr));
  EXPECT_BAD_ARGUMENT("nId", ncclCommInitRankScalable(&comm, 2, 0, 0, ids, nullptr));
  EXPECT_BAD_ARGUMENT("nId", ncclCommInitRankScalable(&comm, 2, 0, 3, ids, nullptr));
  EXPECT_BAD_ARGUMENT("commIds", ncclCommInitRankScalable(&comm, 2, 0, 1, nullptr, nullptr));
}

TEST(BadInit, AnIdThatNobodyMadeIsRefused) {
  ncclUniqueId id;
  std::memset(&id, 0, sizeof id);
  PendingCall zeros([id] {
    ncclComm_t comm = nullptr;
    return ncclCommInitRank(&comm, 2, id, 0);
  });
  const ncclResult_t result = zeros.wait_for(std::chrono::seconds(20));
  EXPECT_NE(result, ncclNumResults) << "hangs";
  EXPECT_NE(result, ncclSuccess);
}

void expect_config_refused(const char* named, void (*change)(ncclConfig_t&)) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  change(config);
  ncclComm_t comm = nullptr;
  EXPECT_BAD_ARGUMENT(named, ncclCommInitRankConfig(&comm, 1, new_unique_id(), 0, &config));
}

TEST(BadConfig, IsRefusedNamingTheField) {
  expect_config_refused("magic", [](ncclConfig_t& c) { c.magic = 0xdeadbeef; });
  expect_config_refused("size", [](ncclConfig_t& c) { c.size = 3; });
  expect_config_refused("blocking", [](ncclConfig_t& c) { c.blocking = 7; });
  expect_config_refused("blocking", [](ncclConfig_t& c) { c.blocking = -2; });
  expect_config_refused("minCTAs", [](ncclConfig_t& c) { c.minCTAs = -1; });
  expect_config_refused("minCTAs", [](ncclConfig_t& c) { c.minCTAs = 0; });
  expect_config_refused("maxCTAs", [](ncclConfig_t& c) { c.maxCTAs = -1; });
  expect_config_refused("minCTAs", [](ncclConfig_t& c) {
    c.minCTAs = 8;
    c.maxCTAs = 4;
  });
  expect_config_refused("cgaClusterSize", [](ncclConfig_t& c) { c.cgaClusterSize = -1; });
  expect_config_refused("trafficClass", [](ncclConfig_t& c) { c.trafficClass = 256; });
  expect_config_refused("splitShare", [](ncclConfig_t& c) { c.splitShare = 2; });
  expect_config_refused("shrinkShare", [](ncclConfig_t& c) { c.shrinkShare = 5; });
  expect_config_refused("collnetEnable", [](ncclConfig_t& c) { c.collnetEnable = 9; });
  expect_config_refused("nvlsCTAs", [](ncclConfig_t& c) { c.nvlsCTAs = -4; });
  expect_config_refused("graphUsageMode", [](ncclConfig_t& c) { c.graphUsageMode = 3; });
  expect_config_refused("numRmaCtx", [](ncclConfig_t& c) { c.numRmaCtx = -1; });
  expect_config_refused("maxP2pPeers", [](ncclConfig_t& c) { c.maxP2pPeers = 0; });
  expect_config_refused("graphStreamOrdering", [](ncclConfig_t& c) { c.graphStreamOrdering = 2; });
}

// Fields that a caller's version does not have are not read, whatever lies there.
TEST(OldConfigs, OfEveryVersionAreAccepted) {
  struct Version {
    unsigned code;
    size_t size, end;  // the struct, and its last field
  };
  for (const Version& version : std::vector<Version>{{21403, 24, 20},
                                                     {21701, 40, 40},
                                                     {21803, 48, 44},
                                                     {22602, 48, 48},
                                                     {22703, 72, 72},
                                                     {22809, 80, 80},
                                                     {22907, 88, 88},
                                                     {23003, 96, 92},
                                                     {23007, 96, 96}}) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    std::memset(reinterpret_cast<char*>(&config) + version.end, 0x7e, sizeof config - version.end);
    config.size = version.size;
    config.version = version.code;
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, new_unique_id(), 0, &config), ncclSuccess)
        << version.code << ": " << ncclGetLastError(nullptr);
    WEFT_OK(ncclCommDestroy(comm));
  }
}

TEST(OldConfigs, TheLastFieldOfEveryVersionIsRead) {
  const auto refused = [](unsigned code, size_t size, void (*change)(ncclConfig_t&)) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    change(config);
    config.size = size;
    config.version = code;
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, new_unique_id(), 0, &config), ncclInvalidArgument)
        << code;
  };
  refused(21403, 24, [](ncclConfig_t& c) { c.blocking = 7; });
  refused(21701, 40, [](ncclConfig_t& c) { c.maxCTAs = -1; });
  refused(21803, 48, [](ncclConfig_t& c) { c.splitShare = 2; });
  refused(22703, 72, [](ncclConfig_t& c) { c.nvlsCTAs = -4; });
  refused(22809, 80, [](ncclConfig_t& c) { c.nvlinkCentricSched = 3; });
  refused(22907, 88, [](ncclConfig_t& c) { c.numRmaCtx = -3; });
  refused(23003, 96, [](ncclConfig_t& c) { c.maxP2pPeers = -3; });
  refused(23007, 96, [](ncclConfig_t& c) { c.graphStreamOrdering = 3; });
}

class Queries : public testing::Test {
 protected:
  CommSet set_{1};
  ncclComm_t comm_ = set_[0];
};

TEST_F(Queries, NullPointersAreRefused) {
  int x = 0;
  ncclResult_t state = ncclSuccess;
  EXPECT_BAD_ARGUMENT("comm", ncclCommCount(nullptr, &x));
  EXPECT_BAD_ARGUMENT("count", ncclCommCount(comm_, nullptr));
  EXPECT_BAD_ARGUMENT("comm", ncclCommUserRank(nullptr, &x));
  EXPECT_BAD_ARGUMENT("rank", ncclCommUserRank(comm_, nullptr));
  EXPECT_BAD_ARGUMENT("comm", ncclCommCuDevice(nullptr, &x));
  EXPECT_BAD_ARGUMENT("device", ncclCommCuDevice(comm_, nullptr));
  EXPECT_BAD_ARGUMENT("comm", ncclCommGetAsyncError(nullptr, &state));
  EXPECT_BAD_ARGUMENT("asyncError", ncclCommGetAsyncError(comm_, nullptr));
  EXPECT_BAD_ARGUMENT("comm", ncclCommRevoke(nullptr, 0));
}

// NCCL accepts these two calls.
TEST_F(Queries, DestroyAndAbortOfNullAreNothing) {
  WEFT_OK(ncclCommDestroy(nullptr));
  WEFT_OK(ncclCommAbort(nullptr));
}

TEST_F(Queries, BadSplitsAndShrinksAreRefused) {
  ncclComm_t made = nullptr;
  EXPECT_BAD_ARGUMENT("comm", ncclCommSplit(nullptr, 0, 0, &made, nullptr));
  EXPECT_BAD_ARGUMENT("newcomm", ncclCommSplit(comm_, 0, 0, nullptr, nullptr));
  EXPECT_BAD_ARGUMENT("color", ncclCommSplit(comm_, -5, 0, &made, nullptr));
  int self[] = {0};
  int beyond[] = {4};
  EXPECT_BAD_ARGUMENT("comm", ncclCommShrink(nullptr, beyond, 1, &made, nullptr, 0));
  EXPECT_BAD_ARGUMENT("newcomm", ncclCommShrink(comm_, beyond, 1, nullptr, nullptr, 0));
  EXPECT_BAD_ARGUMENT("excludeRanksList", ncclCommShrink(comm_, beyond, 1, &made, nullptr, 0));
  EXPECT_BAD_ARGUMENT("excludeRanksList", ncclCommShrink(comm_, self, 1, &made, nullptr, 0));
  EXPECT_BAD_ARGUMENT("excludeRanksList", ncclCommShrink(comm_, nullptr, 1, &made, nullptr, 0));
  EXPECT_EQ(made, nullptr);
}

TEST_F(Queries, BadRegistrationsAreRefused) {
  char buffer[64];
  void* handle = nullptr;
  EXPECT_BAD_ARGUMENT("comm", ncclCommRegister(nullptr, buffer, 64, &handle));
  EXPECT_BAD_ARGUMENT("buff", ncclCommRegister(comm_, nullptr, 64, &handle));
  EXPECT_BAD_ARGUMENT("handle", ncclCommRegister(comm_, buffer, 64, nullptr));
  ncclWindow_t window = nullptr;
  EXPECT_BAD_ARGUMENT("comm", ncclCommWindowRegister(nullptr, buffer, 64, &window, 0));
  EXPECT_BAD_ARGUMENT("buff", ncclCommWindowRegister(comm_, nullptr, 64, &window, 0));
  EXPECT_BAD_ARGUMENT("win", ncclCommWindowRegister(comm_, buffer, 64, nullptr, 0));
  EXPECT_BAD_ARGUMENT("winFlags", ncclCommWindowRegister(comm_, buffer, 64, &window, 0x4));
}

TEST_F(Queries, FreeingWhatWasNotAllocatedIsRefused) {
  int local = 0;
  EXPECT_BAD_ARGUMENT("ptr", ncclMemFree(&local));
}

TEST(MemAllocErrors, AnImpossibleSizeIsAnErrorWithText) {
  void* memory = nullptr;
  EXPECT_NE(ncclMemAlloc(&memory, std::numeric_limits<size_t>::max() / 2), ncclSuccess);
  EXPECT_STRNE(ncclGetLastError(nullptr), "");
}

TEST(Simulation, ABadInfoStructureIsRefused) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  info.magic = 1;
  WEFT_OK(ncclGroupStart());
  EXPECT_BAD_ARGUMENT("magic", ncclGroupSimulateEnd(&info));
  ncclGroupEnd();  // whether the refused call closed the group is not specified
}

}  // namespace
}  // namespace weft::test
