// Processes that fork. A child holds copies of its parent's sockets. It must neither hide its
// parent's death nor hang.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "tests/faults/scenario.h"
#include "tests/support/sampling.h"
#include "weft.h"

namespace weft::test {
namespace {

// The exit status of a child; -1: it was ended by a signal, or it hung and is killed now.
int status_within(pid_t child, int seconds) {
  const auto end = std::chrono::steady_clock::now() + patience(std::chrono::seconds(seconds));
  while (std::chrono::steady_clock::now() < end) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child)
      return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    pause_ms(10);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return -1;
}

// Rank 1 dies. Its child, say a data loader, lives on with copies of all sockets.
void child_outlives_its_parent(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  player.stage().meet(0, player.nranks());
  if (player.rank() == 1) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(15);  // it ends in any case, also when a survivor hangs
      for (;;) pause();
    }
    player.stage().set_child(child);
    player.die();
  }
  player.stage().await(Stage::kFault);
  const Ending ending = player.all_reduce(comm);
  player.expect_death(ending, 1);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  player.stage().meet(1, player.nranks() - 1);
  if (player.rank() == 0) kill(player.stage().child(), SIGKILL);
}

// A child's call on its parent's communicator is an error. The parent goes on.
void child_uses_old_communicator(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  const pid_t child = fork();
  if (child == 0) {
    int word = 1;
    const ncclResult_t result = ncclAllReduce(&word, &word, 1, ncclInt32, ncclSum, comm, nullptr);
    const std::string text = ncclGetLastError(nullptr);
    _exit(result == ncclInvalidUsage && text.find("fork") != std::string::npos ? 0 : 1);
  }
  EXPECT_EQ(status_within(child, 3), 0) << "1: wrong result or text; -1: it hung or crashed";
  player.expect_works(comm);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// The thread of a started call is the parent's. A child that joined it would wait for ever.
void child_waits_for_a_started_call(Player& player) {
  ncclComm_t comm = player.join();
  int word = 1;
  unsigned ready = 0;
  weftRequest_t request = nullptr;
  EXPECT_EQ(weftStart(comm, "all_reduce", &word, &word, 1, ncclInt32, ncclSum, 0, 1, &ready,
                      nullptr, &request),
            ncclSuccess);
  const pid_t child = fork();
  if (child == 0) {
    const ncclResult_t result = weftWait(request);
    const std::string text = ncclGetLastError(nullptr);
    _exit(result == ncclInvalidUsage && text.find("fork") != std::string::npos ? 0 : 1);
  }
  EXPECT_EQ(status_within(child, 3), 0) << "1: wrong result or text; -1: it hung or crashed";
  __atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
  EXPECT_EQ(weftWait(request), ncclSuccess);
  EXPECT_EQ(word, player.nranks());
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// A child makes a communicator of its own.
void child_makes_new_communicator(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  const pid_t child = fork();
  if (child == 0) {
    ncclUniqueId id;
    ncclComm_t own = nullptr;
    int word = 5;
    const bool works =
        ncclGetUniqueId(&id) == ncclSuccess && ncclCommInitRank(&own, 1, id, 0) == ncclSuccess &&
        ncclAllReduce(&word, &word, 1, ncclInt32, ncclSum, own, nullptr) == ncclSuccess &&
        word == 5 && ncclCommDestroy(own) == ncclSuccess;
    _exit(works ? 0 : 1);
  }
  EXPECT_EQ(status_within(child, 5), 0) << "1: a call failed; -1: it hung or crashed";
  player.expect_works(comm);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// Children that exit at once, as of system(3), change nothing.
void children_come_and_go(Player& player) {
  ncclComm_t comm = player.join();
  for (int i = 0; i < (kSanitized ? 1 : 5); i++) {
    player.expect_works(comm);
    EXPECT_EQ(std::system("true"), 0);
    const pid_t child = fork();
    if (child == 0) std::exit(0);  // with exit handlers, LeakSanitizer's among them
    EXPECT_EQ(status_within(child, 10), 0);
  }
  player.expect_works(comm);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

}  // namespace

std::vector<FaultScenario> fork_scenarios() {
  return {
      {"child_outlives_its_parent",
       "rank 1 dies, its forked child lives on",
       3,
       child_outlives_its_parent,
       2,
       {1}},
      {"child_outlives_its_parent_hosts",
       "the same, every rank on its own host",
       3,
       child_outlives_its_parent,
       2,
       {1},
       kOwnHosts},
      {"child_uses_old_communicator", "a forked child calls on its parent's communicator", 2,
       child_uses_old_communicator},
      {"child_waits_for_a_started_call", "a forked child waits for its parent's weftStart", 2,
       child_waits_for_a_started_call},
      {"child_makes_new_communicator", "a forked child makes its own communicator", 2,
       child_makes_new_communicator},
      {"children_come_and_go", "forked children exit, the parents go on", 2, children_come_and_go},
  };
}

}  // namespace weft::test
