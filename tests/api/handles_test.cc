// Handles used after they are destroyed, and reduction operators used on the wrong communicator.
#include <gtest/gtest.h>

#include "tests/api/rejected.h"
#include "tests/comm/checks.h"

namespace weft::test {
namespace {

void expect_all_calls_refuse(ncclComm_t gone) {
  float x = 1;
  int n = 0;
  ncclResult_t state = ncclSuccess;
  ncclComm_t made = nullptr;
  void* handle = nullptr;
  EXPECT_STALE(ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, gone, nullptr));
  EXPECT_STALE(ncclBroadcast(&x, &x, 1, ncclFloat32, 0, gone, nullptr));
  EXPECT_STALE(ncclSend(&x, 1, ncclFloat32, 0, gone, nullptr));
  EXPECT_STALE(ncclRecv(&x, 1, ncclFloat32, 0, gone, nullptr));
  EXPECT_STALE(ncclCommCount(gone, &n));
  EXPECT_STALE(ncclCommUserRank(gone, &n));
  EXPECT_STALE(ncclCommGetAsyncError(gone, &state));
  EXPECT_STALE(ncclCommSplit(gone, 0, 0, &made, nullptr));
  EXPECT_STALE(ncclCommRegister(gone, &x, sizeof x, &handle));
  EXPECT_STALE(ncclCommFinalize(gone));
  EXPECT_STALE(ncclCommDestroy(gone));
  EXPECT_STALE(ncclCommAbort(gone));
  EXPECT_NE(ncclGetLastError(gone), nullptr);
}

TEST(StaleHandle, DestroyedCommunicatorIsRefusedEverywhere) {
  ncclComm_t comm = nullptr;
  WEFT_OK(ncclCommInitRank(&comm, 1, new_unique_id(), 0));
  WEFT_OK(ncclCommDestroy(comm));
  expect_all_calls_refuse(comm);
}

TEST(StaleHandle, AbortedCommunicatorIsRefusedEverywhere) {
  CommSet set(2);
  ncclComm_t comm = set.take(0);
  WEFT_OK(ncclCommAbort(comm));
  expect_all_calls_refuse(comm);
}

TEST(StaleHandle, StaysStaleWhenNewCommunicatorsAreMade) {
  ncclComm_t old = nullptr;
  WEFT_OK(ncclCommInitRank(&old, 1, new_unique_id(), 0));
  WEFT_OK(ncclCommDestroy(old));
  for (int i = 0; i < 20; ++i) {
    CommSet set(1);
    EXPECT_NE(set[0], old) << "a new communicator got the handle of a destroyed one";
  }
  int n = 0;
  EXPECT_STALE(ncclCommCount(old, &n));
}

TEST(StaleHandle, RegistrationCannotBeUndoneTwice) {
  CommSet set(1);
  char buffer[64];
  void* handle = nullptr;
  WEFT_OK(ncclCommRegister(set[0], buffer, sizeof buffer, &handle));
  WEFT_OK(ncclCommDeregister(set[0], handle));
  EXPECT_STALE(ncclCommDeregister(set[0], handle));
}

class PreMulSum : public testing::Test {
 protected:
  void SetUp() override {
    WEFT_OK(
        ncclRedOpCreatePreMulSum(&op_, &scalar_, ncclFloat32, ncclScalarHostImmediate, set_[0]));
  }
  CommSet set_{1};
  CommSet other_{1};
  float scalar_ = 3.0f;
  float x_ = 2.0f;
  double y_ = 2.0;
  ncclRedOp_t op_ = ncclSum;
};

TEST_F(PreMulSum, MultipliesOnOneRank) {
  EXPECT_GE(static_cast<int>(op_), static_cast<int>(ncclNumOps));
  scalar_ = 100.0f;  // the operator read it when it was made
  WEFT_OK(ncclAllReduce(&x_, &x_, 1, ncclFloat32, op_, set_[0], nullptr));
  EXPECT_EQ(x_, 6.0f);
  WEFT_OK(ncclRedOpDestroy(op_, set_[0]));
}

TEST_F(PreMulSum, WithAnotherTypeIsRefused) {
  EXPECT_BAD_ARGUMENT("datatype", ncclAllReduce(&y_, &y_, 1, ncclFloat64, op_, set_[0], nullptr));
}

TEST_F(PreMulSum, OfAnotherCommunicatorIsRefused) {
  EXPECT_BAD_ARGUMENT("op", ncclAllReduce(&x_, &x_, 1, ncclFloat32, op_, other_[0], nullptr));
  EXPECT_BAD_ARGUMENT("op", ncclRedOpDestroy(op_, other_[0]));
}

TEST_F(PreMulSum, DestroyedIsRefused) {
  WEFT_OK(ncclRedOpDestroy(op_, set_[0]));
  EXPECT_BAD_ARGUMENT("op", ncclAllReduce(&x_, &x_, 1, ncclFloat32, op_, set_[0], nullptr));
  EXPECT_BAD_ARGUMENT("op", ncclRedOpDestroy(op_, set_[0]));
}

TEST_F(PreMulSum, BuiltInOperatorsCannotBeDestroyed) {
  EXPECT_BAD_ARGUMENT("op", ncclRedOpDestroy(ncclSum, set_[0]));
}

TEST_F(PreMulSum, BadArgumentsAreRefused) {
  ncclRedOp_t made = ncclSum;
  const auto residence = ncclScalarHostImmediate;
  EXPECT_BAD_ARGUMENT("op",
                      ncclRedOpCreatePreMulSum(nullptr, &scalar_, ncclFloat32, residence, set_[0]));
  EXPECT_BAD_ARGUMENT("scalar",
                      ncclRedOpCreatePreMulSum(&made, nullptr, ncclFloat32, residence, set_[0]));
  EXPECT_BAD_ARGUMENT("comm",
                      ncclRedOpCreatePreMulSum(&made, &scalar_, ncclFloat32, residence, nullptr));
  EXPECT_BAD_ARGUMENT("datatype",
                      ncclRedOpCreatePreMulSum(&made, &scalar_, static_cast<ncclDataType_t>(55),
                                               residence, set_[0]));
  EXPECT_BAD_ARGUMENT("residence",
                      ncclRedOpCreatePreMulSum(&made, &scalar_, ncclFloat32,
                                               static_cast<ncclScalarResidence_t>(9), set_[0]));
}

TEST_F(PreMulSum, ManyOperatorsLiveAtOnce) {
  std::vector<ncclRedOp_t> ops(200);
  for (size_t i = 0; i < ops.size(); ++i) {
    int32_t factor = static_cast<int32_t>(i);
    WEFT_OK(
        ncclRedOpCreatePreMulSum(&ops[i], &factor, ncclInt32, ncclScalarHostImmediate, set_[0]));
  }
  for (size_t i = 0; i < ops.size(); ++i) {
    int value = 3;
    WEFT_OK(ncclAllReduce(&value, &value, 1, ncclInt32, ops[i], set_[0], nullptr));
    EXPECT_EQ(value, 3 * static_cast<int>(i));
    WEFT_OK(ncclRedOpDestroy(ops[i], set_[0]));
  }
}

}  // namespace
}  // namespace weft::test
