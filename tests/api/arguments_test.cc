// Bad arguments of collectives and point-to-point calls.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "tests/api/rejected.h"
#include "tests/comm/checks.h"

namespace weft::test {
namespace {

constexpr size_t kHuge = std::numeric_limits<size_t>::max();

class Arguments : public testing::Test {
 protected:
  void SetUp() override { comm_ = set_[0]; }
  // The communicator must still work after every refused call.
  void TearDown() override {
    run_threads(2, [&](int r) { expect_all_reduce_works(set_[r]); });
  }
  CommSet set_{2};
  ncclComm_t comm_ = nullptr;
  float a_[16] = {};
  float b_[16] = {};
};

TEST_F(Arguments, NullCommunicatorIsRefused) {
  EXPECT_BAD_ARGUMENT("comm", ncclAllReduce(a_, b_, 1, ncclFloat32, ncclSum, nullptr, nullptr));
  EXPECT_BAD_ARGUMENT("comm", ncclReduce(a_, b_, 1, ncclFloat32, ncclSum, 0, nullptr, nullptr));
  EXPECT_BAD_ARGUMENT("comm", ncclBroadcast(a_, b_, 1, ncclFloat32, 0, nullptr, nullptr));
  EXPECT_BAD_ARGUMENT("comm", ncclBcast(a_, 1, ncclFloat32, 0, nullptr, nullptr));
  EXPECT_BAD_ARGUMENT("comm", ncclAllGather(a_, b_, 1, ncclFloat32, nullptr, nullptr));
  EXPECT_BAD_ARGUMENT("comm", ncclReduceScatter(a_, b_, 1, ncclFloat32, ncclSum, nullptr, nullptr));
  EXPECT_BAD_ARGUMENT("comm", ncclAlltoAll(a_, b_, 1, ncclFloat32, nullptr, nullptr));
  EXPECT_BAD_ARGUMENT("comm", ncclGather(a_, b_, 1, ncclFloat32, 0, nullptr, nullptr));
  EXPECT_BAD_ARGUMENT("comm", ncclScatter(a_, b_, 1, ncclFloat32, 0, nullptr, nullptr));
  EXPECT_BAD_ARGUMENT("comm", ncclSend(a_, 1, ncclFloat32, 0, nullptr, nullptr));
  EXPECT_BAD_ARGUMENT("comm", ncclRecv(a_, 1, ncclFloat32, 0, nullptr, nullptr));
}

TEST_F(Arguments, GarbageCommunicatorIsRefused) {
  float not_a_communicator[64] = {};
  const auto comm = reinterpret_cast<ncclComm_t>(not_a_communicator);
  EXPECT_BAD_ARGUMENT("comm", ncclAllReduce(a_, b_, 1, ncclFloat32, ncclSum, comm, nullptr));
  int count = 0;
  EXPECT_BAD_ARGUMENT("comm", ncclCommCount(comm, &count));
}

TEST_F(Arguments, NullBuffersAreRefusedWhereTheyAreUsed) {
  EXPECT_BAD_ARGUMENT("sendbuff",
                      ncclAllReduce(nullptr, b_, 1, ncclFloat32, ncclSum, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("recvbuff",
                      ncclAllReduce(a_, nullptr, 1, ncclFloat32, ncclSum, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("sendbuff",
                      ncclReduce(nullptr, b_, 1, ncclFloat32, ncclSum, 1, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("recvbuff",
                      ncclReduce(a_, nullptr, 1, ncclFloat32, ncclSum, 0, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("sendbuff", ncclBroadcast(nullptr, b_, 1, ncclFloat32, 0, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("recvbuff", ncclBroadcast(a_, nullptr, 1, ncclFloat32, 1, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("buff", ncclBcast(nullptr, 1, ncclFloat32, 0, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("sendbuff", ncclAllGather(nullptr, b_, 1, ncclFloat32, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("recvbuff", ncclAllGather(a_, nullptr, 1, ncclFloat32, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("sendbuff",
                      ncclReduceScatter(nullptr, b_, 1, ncclFloat32, ncclSum, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("recvbuff",
                      ncclReduceScatter(a_, nullptr, 1, ncclFloat32, ncclSum, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("sendbuff", ncclAlltoAll(nullptr, b_, 1, ncclFloat32, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("recvbuff", ncclAlltoAll(a_, nullptr, 1, ncclFloat32, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("sendbuff", ncclGather(nullptr, b_, 1, ncclFloat32, 1, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("recvbuff", ncclGather(a_, nullptr, 1, ncclFloat32, 0, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("sendbuff", ncclScatter(nullptr, b_, 1, ncclFloat32, 0, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("recvbuff", ncclScatter(a_, nullptr, 1, ncclFloat32, 1, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("sendbuff", ncclSend(nullptr, 1, ncclFloat32, 1, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("recvbuff", ncclRecv(nullptr, 1, ncclFloat32, 1, comm_, nullptr));
}

TEST_F(Arguments, RootsAndPeersOutOfRangeAreRefused) {
  for (int bad : {-1, 2, 1000000, std::numeric_limits<int>::min()}) {
    EXPECT_BAD_ARGUMENT("root", ncclReduce(a_, b_, 1, ncclFloat32, ncclSum, bad, comm_, nullptr));
    EXPECT_BAD_ARGUMENT("root", ncclBroadcast(a_, b_, 1, ncclFloat32, bad, comm_, nullptr));
    EXPECT_BAD_ARGUMENT("root", ncclBcast(a_, 1, ncclFloat32, bad, comm_, nullptr));
    EXPECT_BAD_ARGUMENT("root", ncclGather(a_, b_, 1, ncclFloat32, bad, comm_, nullptr));
    EXPECT_BAD_ARGUMENT("root", ncclScatter(a_, b_, 1, ncclFloat32, bad, comm_, nullptr));
    EXPECT_BAD_ARGUMENT("peer", ncclSend(a_, 1, ncclFloat32, bad, comm_, nullptr));
    EXPECT_BAD_ARGUMENT("peer", ncclRecv(a_, 1, ncclFloat32, bad, comm_, nullptr));
  }
}

TEST_F(Arguments, UnknownTypesAreRefused) {
  for (int bad : {-1, static_cast<int>(ncclNumTypes), 100}) {
    const auto type = static_cast<ncclDataType_t>(bad);
    EXPECT_BAD_ARGUMENT("datatype", ncclAllReduce(a_, b_, 1, type, ncclSum, comm_, nullptr));
    EXPECT_BAD_ARGUMENT("datatype", ncclReduce(a_, b_, 1, type, ncclSum, 0, comm_, nullptr));
    EXPECT_BAD_ARGUMENT("datatype", ncclBroadcast(a_, b_, 1, type, 0, comm_, nullptr));
    EXPECT_BAD_ARGUMENT("datatype", ncclAllGather(a_, b_, 1, type, comm_, nullptr));
    EXPECT_BAD_ARGUMENT("datatype", ncclReduceScatter(a_, b_, 1, type, ncclSum, comm_, nullptr));
    EXPECT_BAD_ARGUMENT("datatype", ncclAlltoAll(a_, b_, 1, type, comm_, nullptr));
    EXPECT_BAD_ARGUMENT("datatype", ncclGather(a_, b_, 1, type, 0, comm_, nullptr));
    EXPECT_BAD_ARGUMENT("datatype", ncclScatter(a_, b_, 1, type, 0, comm_, nullptr));
    EXPECT_BAD_ARGUMENT("datatype", ncclSend(a_, 1, type, 1, comm_, nullptr));
    EXPECT_BAD_ARGUMENT("datatype", ncclRecv(a_, 1, type, 1, comm_, nullptr));
  }
}

TEST_F(Arguments, UnknownOperatorsAreRefused) {
  for (int bad : {-1, static_cast<int>(ncclNumOps), 4711, static_cast<int>(ncclMaxRedOp)}) {
    const auto op = static_cast<ncclRedOp_t>(bad);
    EXPECT_BAD_ARGUMENT("op", ncclAllReduce(a_, b_, 1, ncclFloat32, op, comm_, nullptr));
    EXPECT_BAD_ARGUMENT("op", ncclReduce(a_, b_, 1, ncclFloat32, op, 0, comm_, nullptr));
    EXPECT_BAD_ARGUMENT("op", ncclReduceScatter(a_, b_, 1, ncclFloat32, op, comm_, nullptr));
  }
}

TEST_F(Arguments, CountsWhoseBytesOverflowAreRefused) {
  const size_t half = kHuge / 4 + 1;  // times 4 bytes is 2^64
  EXPECT_BAD_ARGUMENT("count", ncclAllReduce(a_, b_, half, ncclFloat32, ncclSum, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("count", ncclAllReduce(a_, b_, kHuge, ncclFloat64, ncclSum, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("count", ncclReduce(a_, b_, half, ncclFloat32, ncclSum, 0, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("count", ncclBroadcast(a_, b_, half, ncclFloat32, 0, comm_, nullptr));
  // One rank's part fits in memory, the whole buffer does not.
  EXPECT_BAD_ARGUMENT("count", ncclAllGather(a_, b_, kHuge / 8 + 1, ncclFloat32, comm_, nullptr));
  EXPECT_BAD_ARGUMENT(
      "count", ncclReduceScatter(a_, b_, kHuge / 8 + 1, ncclFloat32, ncclSum, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("count", ncclAlltoAll(a_, b_, kHuge / 8 + 1, ncclFloat32, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("count", ncclGather(a_, b_, kHuge / 8 + 1, ncclFloat32, 0, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("count", ncclScatter(a_, b_, kHuge / 8 + 1, ncclFloat32, 0, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("count", ncclSend(a_, half, ncclFloat32, 1, comm_, nullptr));
  EXPECT_BAD_ARGUMENT("count", ncclRecv(a_, half, ncclFloat32, 1, comm_, nullptr));
}

TEST_F(Arguments, LastErrorOfTheCommunicatorSaysTheSame) {
  EXPECT_BAD_ARGUMENT("root", ncclBroadcast(a_, b_, 1, ncclFloat32, 9, comm_, nullptr));
  EXPECT_NE(std::string(ncclGetLastError(comm_)).find("root"), std::string::npos)
      << ncclGetLastError(comm_);
  EXPECT_NE(std::string(ncclGetLastError(comm_)).find('9'), std::string::npos)
      << ncclGetLastError(comm_);
}

}  // namespace
}  // namespace weft::test
