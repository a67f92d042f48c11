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
  expect_config_refused("splitShare", [](ncclConfig_t& c) { c.splitShare = 2; });
  expect_config_refused("shrinkShare", [](ncclConfig_t& c) { c.shrinkShare = 5; });
  expect_config_refused("collnetEnable", [](ncclConfig_t& c) { c.collnetEnable = 9; });
  expect_config_refused("nvlsCTAs", [](ncclConfig_t& c) { c.nvlsCTAs = -4; });
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
  EXPECT_BAD_ARGUMENT("comm", ncclCommFinalize(nullptr));
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
