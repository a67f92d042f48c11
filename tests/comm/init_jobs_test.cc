// Jobs that make communicators, when something is missing: threads, other ranks, the end of a
// group.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include <atomic>

#include "tests/comm/checks.h"
#include "tests/support/environment.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

using std::chrono::seconds;

// While it lives, no thread can be made: there is no memory for its stack.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 50);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

ncclComm_t make_background(int nranks, const ncclUniqueId& id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ncclCommInitRankConfig(&comm, nranks, id, rank, &config);
  EXPECT_EQ(settle(comm), ncclSuccess) << ncclGetLastError(comm);
  return comm;
}

void expect_ends(ncclResult_t (*function)(ncclComm_t), ncclComm_t comm) {
  PendingCall call([=] { return function(comm); });
  EXPECT_EQ(call.wait_for(seconds(20)), ncclSuccess);
}

TEST(WithoutThreads, AGroupOfInitsFails) {
  CommSet warm(1);  // the library's own threads
  ncclComm_t comms[2] = {};
  const ncclUniqueId id = new_unique_id();
  WEFT_OK(ncclGroupStart());
  for (int r = 0; r < 2; r++) WEFT_OK(ncclCommInitRank(&comms[r], 2, id, r));
  {
    const NoThreads none;
    EXPECT_EQ(ncclGroupEnd(), ncclSystemError);
  }
  for (ncclComm_t comm : comms) EXPECT_EQ(comm, nullptr);
}

TEST(WithoutThreads, ANonBlockingInitFailsAndItsCommunicatorCanBeDestroyed) {
  CommSet warm(1);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclUniqueId id = new_unique_id();
  {
    const NoThreads none;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclSystemError);
  }
  ASSERT_NE(comm, nullptr);
  EXPECT_EQ(settle(comm), ncclSystemError);
  expect_ends(ncclCommDestroy, comm);
}

TEST(WithoutThreads, ASplitAndAFinalizeFailAndCanBeRepeated) {
  ncclComm_t comm = make_background(1, new_unique_id(), 0);
  ncclComm_t child = nullptr;
  {
    const NoThreads none;
    EXPECT_EQ(ncclCommSplit(comm, 0, 0, &child, nullptr), ncclSystemError);
    EXPECT_EQ(ncclCommFinalize(comm), ncclSystemError);
  }
  EXPECT_EQ(child, nullptr);
  EXPECT_EQ(ncclCommSplit(comm, 0, 0, &child, nullptr), ncclInProgress);
  EXPECT_EQ(settle(comm), ncclSuccess);
  ASSERT_NE(child, nullptr);
  expect_ends(ncclCommDestroy, child);
  EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
  EXPECT_EQ(settle(comm), ncclSuccess);
  expect_ends(ncclCommDestroy, comm);
}

// Whoever listens there takes the connection and says nothing.
TEST(AbortOfAnInit, EndsWhileTheRendezvousIsSilent) {
  const int silent = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(silent, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(silent, 8), 0);
  getsockname(silent, reinterpret_cast<sockaddr*>(&address), &size);
  const std::string name = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  const ScopedEnvironment environment{{"NCCL_COMM_ID", name.c_str()}};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, new_unique_id(), 1, &config), ncclInProgress);
  usleep(300000);
  PendingCall abort([comm] { return ncclCommAbort(comm); });
  EXPECT_EQ(abort.wait_for(seconds(8)), ncclSuccess);
  close(silent);
}

// Rank 1 joins one of two children of rank 0. Nobody joins the other one.
TEST(SeveralChildren, AreInProgressUntilTheLastIsDoneAndAnAbortEndsAll) {
  const ncclUniqueId id = new_unique_id();
  ncclComm_t comms[3] = {};
  run_threads(3, [&](int rank) { comms[rank] = make_background(3, id, rank); });
  ncclComm_t lonely[2] = {};
  ncclComm_t pair[2] = {};
  int without[] = {0, 1, 2};
  EXPECT_EQ(ncclCommShrink(comms[0], &without[1], 1, &lonely[0], nullptr, 0), ncclInProgress);
  EXPECT_EQ(ncclCommShrink(comms[0], &without[2], 1, &pair[0], nullptr, 0), ncclInProgress);
  EXPECT_EQ(ncclCommShrink(comms[1], &without[2], 1, &pair[1], nullptr, 0), ncclInProgress);
  EXPECT_EQ(ncclCommShrink(comms[1], &without[0], 1, &lonely[1], nullptr, 0), ncclInProgress);
  for (int r : {0, 1}) {
    const std::atomic_ref made(pair[r]);
    for (int tries = 0; tries < 2000 && made.load() == nullptr; tries++) usleep(10000);
    EXPECT_NE(made.load(), nullptr);
    ncclResult_t state = ncclSuccess;
    WEFT_OK(ncclCommGetAsyncError(comms[r], &state));
    EXPECT_EQ(state, ncclInProgress) << "the other child is not done";
  }
  for (ncclComm_t comm : comms) expect_ends(ncclCommAbort, comm);
  for (ncclComm_t comm : lonely) EXPECT_EQ(comm, nullptr);
  for (ncclComm_t comm : pair) expect_ends(ncclCommAbort, comm);
}

TEST(NonBlockingShrink, ReportsItsSuccessBeforeTheFaultOfTheParent) {
  const ncclUniqueId id = new_unique_id();
  run_threads(3, [&](int rank) {
    ncclComm_t comm = make_background(3, id, rank);
    int excluded[] = {2};
    ncclComm_t rest = nullptr;
    int data = 1;
    if (rank < 2) {
      // The parent waits for rank 2, which never comes.
      EXPECT_EQ(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, comm, nullptr), ncclInProgress);
      EXPECT_EQ(ncclCommShrink(comm, excluded, 1, &rest, nullptr, NCCL_SHRINK_ABORT),
                ncclInProgress);
      usleep(300000);  // until faults are settled
      EXPECT_EQ(settle(comm), ncclSuccess) << ncclGetLastError(comm);
      EXPECT_NE(rest, nullptr);
      if (rest != nullptr) expect_ends(ncclCommAbort, rest);
      ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, comm, nullptr);
      EXPECT_NE(settle(comm), ncclSuccess) << "the parent was stopped";
    }
    expect_ends(ncclCommAbort, comm);
  });
}

TEST(AGroupThatDoesNotRun, LeavesSuspendedCommunicatorsAsleep) {
  CommSet set(2);
  const auto in_group = [&](ncclResult_t (*change)(ncclComm_t)) {
    WEFT_OK(ncclGroupStart());
    for (int r = 0; r < 2; r++) WEFT_OK(change(set[r]));
  };
  in_group([](ncclComm_t comm) { return ncclCommSuspend(comm, NCCL_SUSPEND_MEM); });
  WEFT_OK(ncclGroupEnd());
  in_group(ncclCommResume);
  EXPECT_NE(ncclCommSuspend(nullptr, NCCL_SUSPEND_MEM), ncclSuccess);
  EXPECT_NE(ncclGroupEnd(), ncclSuccess) << "a call inside the group failed";
  in_group(ncclCommResume);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  WEFT_OK(ncclGroupSimulateEnd(&info));
  in_group(ncclCommResume);
  WEFT_OK(ncclGroupEnd());
  run_threads(2, [&](int rank) { expect_all_reduce_works(set[rank]); });
  in_group([](ncclComm_t comm) { return ncclCommSuspend(comm, NCCL_SUSPEND_MEM); });
  WEFT_OK(ncclGroupEnd());
  in_group(ncclCommResume);
  WEFT_OK(ncclGroupSimulateEnd(&info));
  for (int r = 0; r < 2; r++) expect_ends(ncclCommDestroy, set.take(r));
}

}  // namespace
}  // namespace weft::test
