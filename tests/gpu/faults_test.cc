// A kernel that waits can always be ended, and the GPU is usable afterwards.
#include <gtest/gtest.h>

#include <thread>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/team.h"
#include "tests/gpu/support/waiting.h"
#include "tests/support/environment.h"
#include "tests/support/log_file.h"
#include "tests/support/patterns.h"

namespace weft::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The call that one rank makes while the other never calls. There is one name per way of waiting.
struct Lonely {
  const char* name;
  ncclResult_t (*call)(ncclComm_t comm, char* in, char* out, cudaStream_t stream);
};
constexpr size_t kLarge = size_t{1} << 20;  // elements
const Lonely kLonely[] = {
    {"SmallAllReduce",
     [](ncclComm_t comm, char* in, char* out, cudaStream_t stream) {
       return ncclAllReduce(in, out, 100, ncclFloat32, ncclSum, comm, stream);
     }},
    {"LargeAllReduce",
     [](ncclComm_t comm, char* in, char* out, cudaStream_t stream) {
       return ncclAllReduce(in, out, kLarge, ncclFloat32, ncclSum, comm, stream);
     }},
    {"AllGather",
     [](ncclComm_t comm, char* in, char* out, cudaStream_t stream) {
       return ncclAllGather(in, out, kLarge, ncclFloat32, comm, stream);
     }},
    {"BroadcastFromTheAbsent",
     [](ncclComm_t comm, char* in, char* out, cudaStream_t stream) {
       return ncclBroadcast(in, out, 5000, ncclFloat32, 1, comm, stream);
     }},
    {"Recv", [](ncclComm_t comm, char*, char* out,
                cudaStream_t stream) { return ncclRecv(out, 5000, ncclFloat32, 1, comm, stream); }},
    {"LargeSend",
     [](ncclComm_t comm, char* in, char*, cudaStream_t stream) {
       return ncclSend(in, 2 * kLarge, ncclFloat32, 1, comm, stream);
     }},
};

// One thread has both ranks. Only rank 0 calls.
class Faults : public GpuTest {
 protected:
  void SetUp() override {
    arena_ = std::make_unique<Arena>(size_t{64} << 20, Origin::kCudaMalloc);
    in_ = arena_->take(size_t{16} << 20);
    out_ = arena_->take(size_t{16} << 20);
    // The first memset loads code, which must not happen while a kernel waits.
    WEFT_CUDA(cudaMemset(in_, 0, size_t{16} << 20));
    WEFT_CUDA(cudaDeviceSynchronize());
  }
  void TearDown() override {
    set_.reset();
    arena_.reset();
    GpuTest::TearDown();
  }
  void make_communicators() { set_ = std::make_unique<CommSet>(2); }
  void call_alone(const Lonely& lonely) {
    WEFT_OK(lonely.call((*set_)[0], in_, out_, stream_));
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady) << "should be waiting for rank 1";
    cudaGetLastError();
  }
  // Aborts both ranks and checks that the device still works.
  void expect_recovery() {
    for (int r = 0; r < 2; ++r)
      if (ncclComm_t comm = set_->take(r); comm != nullptr) expect_abort_succeeds(comm);
    for (const cudaStream_t stream : {stream_, stream_number(1)}) expect_usable(stream, in_);
    if (!HasFailure()) expect_new_communicators_work();
  }
  const cudaStream_t stream_ = stream_number(0);
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<CommSet> set_;
  char *in_ = nullptr, *out_ = nullptr;
};

class WaitOf : public Faults, public testing::WithParamInterface<Lonely> {
 protected:
  void expect_end_by_departure(std::initializer_list<ScopedEnvironment::Setting> variables) {
    {
      const ScopedEnvironment environment(variables);
      make_communicators();
    }
    call_alone(GetParam());
    ncclComm_t leaving = set_->take(1);
    PendingCall destroy([leaving] { return ncclCommDestroy(leaving); });
    EXPECT_NE(async_error_within((*set_)[0], seconds(5)), ncclSuccess);
    const std::string text = ncclGetLastError((*set_)[0]);
    // A CPU node that detects it uses a text of its own.
    EXPECT_TRUE(says(text, "rank 1 has left|peer 1 .*has left")) << text;
    EXPECT_EQ(finish_within(stream_, seconds(5)), "");
    EXPECT_NE(destroy.wait_for(seconds(5)), ncclNumResults) << "the destroy still blocks";
    expect_recovery();
  }
  void expect_warning(std::initializer_list<ScopedEnvironment::Setting> variables) {
    const LogFile file("gpu-stall-test", ncclResetDebugInit);
    {
      const ScopedEnvironment stall{{"WEFT_STALL_WARNING", "0.5"}};
      const ScopedEnvironment environment(variables);
      make_communicators();
    }
    call_alone(GetParam());
    // If CPUs reduce, the GPU waits for a CPU node, and the CPU node waits for the peer.
    const auto warned = [&] {
      return says(file.text(),
                  "NCCL WARN rank 0 .*waits on its GPU for (peer 1: .*share the GPU|CPU node)");
    };
    const auto limit = std::chrono::steady_clock::now() + seconds(10);
    while (!warned() && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(milliseconds(20));
    EXPECT_TRUE(warned()) << file.text();
    expect_abort_succeeds(set_->take(0));
    EXPECT_EQ(finish_within(stream_, seconds(5)), "");
    expect_recovery();
  }
};

TEST_P(WaitOf, IsWarnedAbout) { expect_warning({}); }
TEST_P(WaitOf, IsWarnedAboutInRings) { expect_warning({{"NCCL_P2P_DISABLE", "1"}}); }
TEST_P(WaitOf, IsWarnedAboutInCopyEngines) {
  expect_warning({{"WEFT_COPY_ENGINES", "1"}, {"WEFT_SCRATCH_BYTES", "1M"}});
}

TEST_P(WaitOf, EndsWhenAnotherThreadAborts) {
  make_communicators();
  call_alone(GetParam());
  expect_abort_succeeds(set_->take(0));
  EXPECT_EQ(finish_within(stream_, seconds(5)), "");
  expect_recovery();
}

TEST_P(WaitOf, EndsWhenTheAbsentRankAborts) {
  make_communicators();
  call_alone(GetParam());
  expect_abort_succeeds(set_->take(1));
  EXPECT_NE(async_error_within((*set_)[0], seconds(5)), ncclSuccess);
  EXPECT_TRUE(says(ncclGetLastError((*set_)[0]), "(rank|peer) 1")) << ncclGetLastError((*set_)[0]);
  EXPECT_EQ(finish_within(stream_, seconds(5)), "");
  expect_recovery();
}

TEST_P(WaitOf, EndsAtTheTimeoutAndNamesThePeer) {
  const ScopedEnvironment environment{{"WEFT_TIMEOUT", "1"}};
  make_communicators();
  call_alone(GetParam());
  EXPECT_NE(async_error_within((*set_)[0], seconds(6)), ncclSuccess);
  const std::string text = ncclGetLastError((*set_)[0]);
  EXPECT_TRUE(says(text, "peer 1")) << text;
  EXPECT_TRUE(says(text, "WEFT_TIMEOUT")) << text;
  // Sends and receives have no number.
  const std::string name = GetParam().name;
  const char* call = says(name, "AllReduce")   ? "call 0, all_reduce of .*float32, op sum"
                     : says(name, "AllGather") ? "call 0, all_gather of 4194304 bytes"
                     : says(name, "Broadcast") ? "call 0, broadcast of 20000 bytes .*root 1"
                                               : "";
  EXPECT_TRUE(says(text, call)) << text;
  EXPECT_EQ(finish_within(stream_, seconds(5)), "");
  expect_recovery();
}

// As in host mode: the rank has left, so it will never call.
TEST_P(WaitOf, IsInVainWhenTheAbsentRankHasLeft) { expect_end_by_departure({}); }
TEST_P(WaitOf, IsInVainWhenTheAbsentRankHasLeftItsRings) {
  expect_end_by_departure({{"NCCL_P2P_DISABLE", "1"}});
}
TEST_P(WaitOf, IsInVainWhenTheAbsentRankHasLeftItsCopyEngines) {
  // Small scratch memory: what is sent does not fit into it.
  expect_end_by_departure({{"WEFT_COPY_ENGINES", "1"}, {"WEFT_SCRATCH_BYTES", "1M"}});
}

INSTANTIATE_TEST_SUITE_P(Every, WaitOf, testing::ValuesIn(kLonely),
                         [](const auto& tested) { return tested.param.name; });

// Rank 0 waits for rank 1, which waits for rank 2. Nobody asks rank 1 for its state.
TEST_F(Faults, AnAbortReachesARankThatWaitsForAnotherOne) {
  CommSet set(3);
  WEFT_OK(ncclRecv(out_, 5000, ncclFloat32, 1, set[0], stream_));
  WEFT_OK(ncclRecv(in_, 5000, ncclFloat32, 2, set[1], stream_number(1)));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady) << "should be waiting for rank 1";
  cudaGetLastError();
  expect_abort_succeeds(set.take(2));
  EXPECT_EQ(async_error_within(set[0], seconds(5)), ncclRemoteError);
  EXPECT_TRUE(says(ncclGetLastError(set[0]), "rank 2")) << ncclGetLastError(set[0]);
  for (const cudaStream_t stream : {stream_, stream_number(1)})
    EXPECT_EQ(finish_within(stream, seconds(5)), "");
  for (const int r : {0, 1}) expect_abort_succeeds(set.take(r));
}

TEST_F(Faults, AGraphThatWaitsEndsWhenItIsAborted) {
  make_communicators();
  const Graph graph(stream_, [&] { WEFT_OK(kLonely[1].call((*set_)[0], in_, out_, stream_)); });
  for (int i = 0; i < 3; ++i) graph.replay(stream_);
  std::this_thread::sleep_for(milliseconds(50));
  expect_abort_succeeds(set_->take(0));
  EXPECT_EQ(finish_within(stream_, seconds(5)), "");
  expect_recovery();
}

TEST_F(Faults, ManyQueuedCallsEndWhenTheyAreAborted) {
  make_communicators();
  for (int i = 0; i < 50; ++i)
    for (const Lonely& lonely : kLonely) WEFT_OK(lonely.call((*set_)[0], in_, out_, stream_));
  std::this_thread::sleep_for(milliseconds(50));
  expect_abort_succeeds(set_->take(0));
  EXPECT_EQ(finish_within(stream_, seconds(5)), "");
  expect_recovery();
}

TEST_F(Faults, AWaitEndsWhenItsCommunicatorIsRevoked) {
  make_communicators();
  call_alone(kLonely[1]);
  WEFT_OK(ncclCommRevoke((*set_)[0], NCCL_REVOKE_DEFAULT));
  EXPECT_EQ(finish_within(stream_, seconds(5)), "");
  expect_recovery();
}

TEST_F(Faults, ARankThatIsLateIsNotATimeout) {
  const ScopedEnvironment environment{{"WEFT_TIMEOUT", "3"}};
  run_team(2, [](Rank& me) {
    for (const size_t count : {size_t{50}, size_t{100000}}) {
      const auto run = me.make(make_case(Operation::kAllReduce, count));
      me.meet();
      if (me.rank == 1) std::this_thread::sleep_for(milliseconds(600));
      WEFT_OK(run->launch(me.stream()));
      expect_right(run->check(me.stream()));
    }
  });
}

// Two calls that do not match, one per rank.
struct Mismatch {
  const char* name;
  ncclResult_t (*call)(int rank, ncclComm_t comm, char* in, char* out, cudaStream_t stream);
};
const Mismatch kMismatches[] = {
    {"SmallCounts",
     [](int rank, ncclComm_t comm, char* in, char* out, cudaStream_t stream) {
       return ncclAllReduce(in, out, rank == 0 ? 1000 : 2000, ncclInt32, ncclSum, comm, stream);
     }},
    {"LargeCounts",
     [](int rank, ncclComm_t comm, char* in, char* out, cudaStream_t stream) {
       return ncclAllReduce(in, out, rank == 0 ? 200000 : 250000, ncclInt32, ncclSum, comm, stream);
     }},
    {"Types",
     [](int rank, ncclComm_t comm, char* in, char* out, cudaStream_t stream) {
       return ncclAllReduce(in, out, 100000, rank == 0 ? ncclInt32 : ncclFloat32, ncclSum, comm,
                            stream);
     }},
    {"Operations",
     [](int rank, ncclComm_t comm, char* in, char* out, cudaStream_t stream) {
       return rank == 0 ? ncclReduceScatter(in, out, 5000, ncclInt32, ncclSum, comm, stream)
                        : ncclAllGather(in, out, 5000, ncclInt32, comm, stream);
     }},
    {"Roots",
     [](int rank, ncclComm_t comm, char* in, char* out, cudaStream_t stream) {
       // Two roots may both just send. Then the next call detects the mismatch.
       const ncclResult_t first = ncclBroadcast(in, out, 100000, ncclInt32, rank, comm, stream);
       return first != ncclSuccess
                  ? first
                  : ncclAllReduce(in, out, 100000, ncclInt32, ncclSum, comm, stream);
     }},
    {"CallsOfDifferentKernels",  // which do not see each other: ranks compare calls after a second
     [](int rank, ncclComm_t comm, char* in, char* out, cudaStream_t stream) {
       return ncclAllReduce(in, out, rank == 0 ? 1000 : 2000000, ncclInt32, ncclSum, comm, stream);
     }},
    {"SentAndReceivedBytes",
     [](int rank, ncclComm_t comm, char* in, char* out, cudaStream_t stream) {
       return rank == 0 ? ncclSend(in, 10000, ncclInt32, 1, comm, stream)
                        : ncclRecv(out, 9000, ncclInt32, 0, comm, stream);
     }},
};

class MismatchOf : public Faults, public testing::WithParamInterface<Mismatch> {};

TEST_P(MismatchOf, IsAnErrorThatNamesThePeer) {
  make_communicators();
  const size_t half = size_t{8} << 20;
  for (int r = 0; r < 2; ++r)  // a rank may detect it already when it calls
    GetParam().call(r, (*set_)[r], in_ + static_cast<size_t>(r) * half,
                    out_ + static_cast<size_t>(r) * half, stream_number(static_cast<size_t>(r)));
  std::string texts;
  for (int i = 0; i < 500 && texts.empty(); ++i)
    for (int r = 0; r < 2; ++r)
      if (async_error_within((*set_)[r], milliseconds(5)) != ncclSuccess)
        texts += ncclGetLastError((*set_)[r]);
  EXPECT_TRUE(says(texts, "(peer|rank) [01]")) << "no error, or no peer in it: '" << texts << "'";
  expect_recovery();
}

INSTANTIATE_TEST_SUITE_P(Every, MismatchOf, testing::ValuesIn(kMismatches),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace weft::test
