// Limits and surroundings: few descriptors, little memory, no threads, signals, odd settings, and
// what stays behind.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "tests/faults/leftovers.h"
#include "tests/faults/scenario.h"

namespace weft::test {
namespace {

void limit(decltype(RLIMIT_AS) what, rlim_t most) {
  rlimit now{};
  getrlimit(what, &now);
  now.rlim_cur = most;
  EXPECT_EQ(setrlimit(what, &now), 0);
}

// No thread can be made: a non-blocking call fails, and abort still ends.
void no_threads(Player& player) {
  const ncclUniqueId id = player.id(0, 0);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ncclCommInitRankConfig(&comm, player.nranks(), id, player.rank(), &config);
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    pause_ms(1);
  }
  EXPECT_EQ(state, ncclSuccess);
  player.stage().meet(0, player.nranks());
  if (player.rank() != 0) {
    player.stage().await(Stage::kDone, 10);
    ncclCommAbort(comm);
    return;
  }
  pthread_attr_t large;
  pthread_attr_init(&large);
  pthread_attr_setstacksize(&large, size_t{1} << 28);
  pthread_setattr_default_np(&large);
  limit(RLIMIT_AS, address_space() + (size_t{1} << 22));
  const Ending ending = player.all_reduce(comm);
  limit(RLIMIT_AS, RLIM_INFINITY);
  EXPECT_NE(ending.code, ncclSuccess);
  EXPECT_NE(ending.code, ncclInProgress);
  player.stage().mark(Stage::kFault);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  player.expect_within("abort", player.stage().since(Stage::kFault), 2);
  player.stage().mark(Stage::kDone);
}

// Rank 1 has too few descriptors for the init. All ranks get an error.
void few_descriptors(Player& player) {
  const ncclUniqueId id = player.id(0, 0);
  if (player.rank() == 1) limit(RLIMIT_NOFILE, 10);
  player.stage().meet(0, player.nranks());
  ncclComm_t comm = nullptr;
  const Ending ending = player.call(
      "init", nullptr, [&] { return ncclCommInitRank(&comm, player.nranks(), id, player.rank()); });
  EXPECT_TRUE(ending.code == ncclSystemError || ending.code == ncclRemoteError) << ending.text;
  EXPECT_FALSE(ending.text.empty());
  player.expect_within("init", ending.seconds, 5);
}

// Rank 1 has no memory left for a second communicator. The first one goes on.
void little_memory(Player& player) {
  ncclComm_t old = player.join(0);
  player.expect_works(old);
  const ncclUniqueId id = player.id(1, 0);
  player.stage().meet(0, player.nranks());
  if (player.rank() == 1) limit(RLIMIT_AS, address_space() + (size_t{1} << 20));
  ncclComm_t comm = nullptr;
  const Ending ending = player.call(
      "init", nullptr, [&] { return ncclCommInitRank(&comm, player.nranks(), id, player.rank()); });
  if (player.rank() == 1) limit(RLIMIT_AS, RLIM_INFINITY);
  EXPECT_NE(ending.code, ncclSuccess);
  player.expect_within("init", ending.seconds, 5);
  player.expect_works(old);
  EXPECT_EQ(ncclCommDestroy(old), ncclSuccess);
}

void huge_allocations(Player&) {
  for (const size_t size : {size_t{1} << 50, ~size_t{0}}) {
    void* memory = nullptr;
    EXPECT_NE(ncclMemAlloc(&memory, size), ncclSuccess) << size;
  }
}

std::atomic<int> signals = 0;  // handlers of several threads

// Signals interrupt system calls, 1000 times a second.
void many_signals(Player& player) {
  struct sigaction action {};
  action.sa_handler = [](int) { signals++; };
  sigaction(SIGALRM, &action, nullptr);
  const itimerval often{{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &often, nullptr);
  ncclComm_t comm = player.join();
  for (int i = 0; i < 50; i++) player.expect_works(comm);
  for (int i = 0; i < 20; i++) player.expect_success(player.all_reduce(comm));
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
  EXPECT_GT(signals, 0);
}

// Communicators come and go. Nothing of them stays.
void many_splits(Player& player) {
  ncclComm_t comm = player.join();
  Leftovers before;
  for (int i = 0; i < 40; i++) {
    ncclComm_t part = nullptr;
    player.expect_success(player.call(
        "split", nullptr, [&] { return ncclCommSplit(comm, 0, player.rank(), &part, nullptr); }));
    player.expect_works(part);
    player.stage().meet(1 + i, player.nranks());  // an abort ends calls of others
    EXPECT_EQ(i % 2 == 0 ? ncclCommDestroy(part) : ncclCommAbort(part), ncclSuccess);
    if (i == 3) before = Leftovers();
  }
  player.stage().meet(0, player.nranks());
  EXPECT_TRUE(Leftovers().settle_to(before))
      << Leftovers().describe() << " after " << before.describe();
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

void many_unique_ids(Player&) {
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  const Leftovers before;
  for (int i = 0; i < 2000; i++) EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  EXPECT_TRUE(Leftovers().settle_to(before)) << Leftovers().describe();
}

// A setting that Weft cannot use is an error that names the variable.
void bad_setting(Player& player, const char* variable) {
  ncclUniqueId id;
  const Ending ending = player.call("id", nullptr, [&] { return ncclGetUniqueId(&id); });
  EXPECT_EQ(ending.code, ncclInvalidUsage) << ending.text;
  EXPECT_NE(ending.text.find(variable), std::string::npos) << ending.text;
  player.expect_within("id", ending.seconds, 2);
}

void unknown_interface(Player& player) { bad_setting(player, "NCCL_SOCKET_IFNAME"); }
void bad_timeout(Player& player) { bad_setting(player, "WEFT_TIMEOUT"); }
void bad_size(Player& player) { bad_setting(player, "NCCL_BUFFSIZE"); }

// A file without an end, or one that nobody writes, neither hangs nor exhausts an init.
void odd_configuration_file(Player& player) {
  const std::string fifo = "fifo-" + std::to_string(getpid());
  if (mkfifo(fifo.c_str(), 0600) != 0) GTEST_FAIL() << "mkfifo";
  setenv("NCCL_CONF_FILE", player.rank() == 0 ? fifo.c_str() : "/dev/zero", 1);
  bad_setting(player, player.rank() == 0 ? fifo.c_str() : "/dev/zero");
  unlink(fifo.c_str());
}

}  // namespace

std::vector<FaultScenario> lone_scenarios() {
  return {
      {"no_threads", "no thread can be made in a non-blocking call; then abort", 2, no_threads},
      {"few_descriptors",
       "rank 1 has 10 descriptors",
       2,
       few_descriptors,
       5,
       {},
       {},
       4096,
       {{"WEFT_INIT_TIMEOUT", "3"}}},
      {"little_memory",
       "rank 1 has no memory for a second communicator; the first goes on",
       2,
       little_memory,
       5,
       {},
       {},
       4096,
       {{"WEFT_INIT_TIMEOUT", "3"}}},
      {"huge_allocations", "ncclMemAlloc of more than there is", 1, huge_allocations},
      {"many_signals",
       "a signal every millisecond: nothing fails",
       2,
       many_signals,
       2,
       {},
       {},
       1 << 20},
      {"many_splits", "40 splits, destroyed and aborted: nothing stays", 2, many_splits},
      {"many_unique_ids", "2000 unique ids: nothing stays", 1, many_unique_ids},
      {"unknown_interface",
       "NCCL_SOCKET_IFNAME names no interface",
       2,
       unknown_interface,
       2,
       {},
       kOwnHosts,
       4096,
       {{"NCCL_SOCKET_IFNAME", "nosuch0"}}},
      {"bad_timeout", "WEFT_TIMEOUT=5s", 1, bad_timeout, 2, {}, {}, 4096, {{"WEFT_TIMEOUT", "5s"}}},
      {"bad_size",
       "NCCL_BUFFSIZE=12abc",
       1,
       bad_size,
       2,
       {},
       {},
       4096,
       {{"NCCL_BUFFSIZE", "12abc"}}},
      {"odd_configuration_file", "NCCL_CONF_FILE is a FIFO or /dev/zero", 2, odd_configuration_file,
       5},
  };
}

}  // namespace weft::test
