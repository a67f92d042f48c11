// Ranks that die, stop or are killed, in every phase. The others hear of it within the bound, and
// can go on without the dead.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <thread>

#include "tests/faults/scenario.h"

namespace weft::test {
namespace {

// A rank dies while the others make calls.
template <int kVictim>
void dies_in_calls(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  player.stage().meet(0, player.nranks());
  if (player.rank() == kVictim) {
    std::thread([&player] {
      pause_ms(100);
      player.die();
    }).detach();
    player.all_reduce_until_failure(comm);
    for (;;) pause_ms(1000);
  }
  player.expect_death(player.all_reduce_until_failure(comm), kVictim);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

// A rank dies while the others are in no call.
template <int kVictim>
void dies_while_idle(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  player.stage().meet(0, player.nranks());
  if (player.rank() == kVictim) {
    pause_ms(100);
    player.die();
  }
  player.stage().await(Stage::kFault);
  player.expect_death(player.async_error(comm, 8), kVictim);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

// Rank 1 waits for the dead rank 0, rank 2 waits for rank 1.
void dies_before_a_chain(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  player.stage().meet(0, player.nranks());
  if (player.rank() == 0) {
    pause_ms(200);
    player.die();
  }
  int word = 0;
  player.expect_death(
      player.call("recv", comm,
                  [&] { return ncclRecv(&word, 1, ncclInt32, player.rank() - 1, comm, nullptr); }),
      0,
      {"rank 1 of 3: waiting for data of peer 0 since [0-9:.]{12} UTC in operation 0 [(]sendrecv "
       "of "
       "4 bytes, type int32[)], lane 0, step 0, slice 0 of 1 [(]communicator [0-9a-f]{16}, host "
       "[^ ]+, pid " +
       std::to_string(player.stage().pid(1)) + "[)]"});
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

// Rank 0 dies as soon as its own init has returned. Others may still be in theirs.
void dies_after_init(Player& player) {
  const ncclUniqueId id = player.id(0, 0);
  player.stage().meet(0, player.nranks());
  ncclComm_t comm = nullptr;
  Ending ending = player.call(
      "init", nullptr, [&] { return ncclCommInitRank(&comm, player.nranks(), id, player.rank()); });
  if (player.rank() == 0) player.die();
  if (ending.code == ncclSuccess) ending = player.all_reduce(comm);
  player.expect_death(ending, 0);
  if (comm != nullptr) ncclCommAbort(comm);
}

void dies_in_init(Player& player) {
  const ncclUniqueId id = player.id(0, 0);
  player.stage().meet(0, player.nranks());
  if (player.rank() == 1) {
    std::thread([&player] {
      pause_ms(2);
      player.die();
    }).detach();
  }
  ncclComm_t comm = nullptr;
  Ending ending = player.call(
      "init", nullptr, [&] { return ncclCommInitRank(&comm, player.nranks(), id, player.rank()); });
  if (player.rank() == 1)
    for (;;) pause_ms(1000);
  if (ending.code == ncclSuccess) ending = player.all_reduce_until_failure(comm);
  // A rank that died before anybody heard of it is only missing.
  const bool missing = ending.code == ncclSystemError;
  player.expect_failure(ending, missing ? ncclSystemError : ncclRemoteError,
                        {missing ? "WEFT_INIT_TIMEOUT" : "rank 1([^0-9]|$)"});
  // Rank 0 holds the rendezvous. If it left, a rank that comes late would find nobody who knows.
  player.stage().meet(1, player.nranks() - 1);
  if (comm != nullptr) ncclCommAbort(comm);
}

// From now on a line of the log ends in a full pipe and stops its thread.
void stop_at_the_next_log_line() {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  const char full[4096] = {};
  while (write(ends[1], full, sizeof full) > 0) continue;
  fcntl(ends[1], F_SETFL, 0);
  std::fflush(stdout);
  dup2(ends[1], STDOUT_FILENO);
}

// All ranks have agreed on the split, and log that the part's init begins.
void dies_before_its_part(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  player.stage().meet(0, player.nranks());
  std::thread killer;
  if (player.rank() == 1) {
    stop_at_the_next_log_line();
    killer = std::thread([&] {
      pause_ms(300);
      player.die();
    });
  }
  ncclComm_t part = nullptr;
  player.expect_death(
      player.call("split", nullptr,
                  [&] { return ncclCommSplit(comm, 0, player.rank(), &part, nullptr); }),
      1);
  if (killer.joinable()) killer.join();
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

void dies_in_split(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  player.stage().meet(0, player.nranks());
  if (player.rank() == 1) {
    pause_ms(50);
    player.die();
  }
  ncclComm_t part = nullptr;
  player.expect_death(
      player.call("split", nullptr,
                  [&] { return ncclCommSplit(comm, 0, player.rank(), &part, nullptr); }),
      1);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

// A destroy while another rank dies ends too.
void dies_in_destroy(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  player.stage().meet(0, player.nranks());
  if (player.rank() == 1) player.die();
  const Ending ending = player.call("destroy", nullptr, [&] { return ncclCommDestroy(comm); });
  player.expect_success(ending);
  player.expect_within("destroy", ending.seconds, 2);
}

// The process that made the unique id is no rank. It ends after the init. Then a rank dies.
void maker_left(Player& player) {
  const int maker = player.nranks() - 1;
  const ncclUniqueId id = player.id(0, maker);
  if (player.rank() == maker) {
    player.stage().await(Stage::kFirst);
    Player::leave_without_destroy();
  }
  ncclComm_t comm = nullptr;
  player.expect_success(player.call(
      "init", nullptr, [&] { return ncclCommInitRank(&comm, maker, id, player.rank()); }));
  player.expect_works(comm);
  player.stage().meet(0, maker);
  player.stage().mark(Stage::kFirst);
  while (kill(player.stage().pid(maker), 0) == 0 && player.stage().since(Stage::kFirst) < 1)
    pause_ms(10);
  pause_ms(200);
  player.expect_works(comm);
  player.stage().meet(1, maker);
  if (player.rank() == 1) player.die();
  player.stage().await(Stage::kFault);
  player.expect_death(player.all_reduce(comm), 1);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

// Rank 0 made the unique id and is stopped. Rank 1 dies. Rank 2 hears of it.
void maker_stopped(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  player.stage().meet(0, player.nranks());
  if (player.rank() == 0) {
    player.stage().mark(Stage::kFirst);
    kill(getpid(), SIGSTOP);
    for (;;) pause_ms(1000);
  }
  player.stage().await(Stage::kFirst);
  pause_ms(200);
  if (player.rank() == 1) player.die();
  player.stage().await(Stage::kFault);
  int word = 0;
  player.expect_death(
      player.call("recv", comm, [&] { return ncclRecv(&word, 1, ncclInt32, 1, comm, nullptr); }),
      1);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  kill(player.stage().pid(0), SIGKILL);
}

// A stopped process is not dead: when it continues, the call succeeds.
void stops_and_continues(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  player.stage().meet(0, player.nranks());
  if (player.rank() == 1) {
    player.stage().mark(Stage::kFirst);
    kill(getpid(), SIGSTOP);
  } else if (player.rank() == 0) {
    player.stage().await(Stage::kFirst);
    const int stopped = player.stage().pid(1);
    std::thread([stopped] {
      pause_ms(2500);
      kill(stopped, SIGCONT);
    }).detach();
  }
  player.expect_success(player.all_reduce(comm));
  player.expect_works(comm);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// A wait that gives up says that the peer is stopped, not dead.
void stops_for_too_long(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  player.stage().meet(0, player.nranks());
  if (player.rank() == 1) {
    player.stage().mark(Stage::kFault);
    kill(getpid(), SIGSTOP);
    for (;;) pause_ms(1000);
  }
  player.stage().await(Stage::kFault);
  const std::string pid = std::to_string(player.stage().pid(1));
  player.expect_failure(player.all_reduce(comm), ncclRemoteError,
                        {"WEFT_TIMEOUT", "peer 1 ", "its process .pid " + pid + ". is stopped"});
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  kill(player.stage().pid(1), SIGKILL);
}

ncclComm_t shrink_without(Player& player, ncclComm_t comm, int excluded) {
  ncclComm_t rest = nullptr;
  player.expect_success(player.call("shrink", nullptr, [&] {
    return ncclCommShrink(comm, &excluded, 1, &rest, nullptr, NCCL_SHRINK_ABORT);
  }));
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  return rest;
}

// The survivors of two deaths go on, one after the other.
void survivors_shrink(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  player.stage().meet(0, player.nranks());
  if (player.rank() == 1) player.die();
  Ending ending = player.all_reduce_until_failure(comm);
  EXPECT_EQ(ending.code, ncclRemoteError) << ending.text;
  ncclComm_t rest = shrink_without(player, comm, 1);
  if (rest == nullptr) return;
  player.expect_works(rest);
  player.stage().meet(1, player.nranks() - 1);
  if (player.rank() == 0) player.die();
  ending = player.all_reduce_until_failure(rest);
  EXPECT_EQ(ending.code, ncclRemoteError) << ending.text;
  player.expect_within("the second death", ending.seconds, 2);
  ncclComm_t last = shrink_without(player, rest, 0);
  if (last == nullptr) return;
  player.expect_works(last);
  EXPECT_EQ(ncclCommDestroy(last), ncclSuccess);
}

// Another rank dies before it joins the rest of the survivors. They are told whom to leave out too.
template <int kSecond>
void dies_before_a_shrink(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  player.stage().meet(0, player.nranks());
  if (player.rank() == 1) player.die();
  const Ending ending = player.all_reduce_until_failure(comm);
  EXPECT_EQ(ending.code, ncclRemoteError) << ending.text;
  player.stage().meet(1, player.nranks() - 1);
  if (player.rank() == kSecond) {
    pause_ms(100);
    player.die();
  }
  const auto without = [&](std::vector<int> excluded, ncclComm_t* rest) {
    return player.call("shrink", nullptr, [&, excluded]() mutable {
      return ncclCommShrink(comm, excluded.data(), static_cast<int>(excluded.size()), rest, nullptr,
                            NCCL_SHRINK_ABORT);
    });
  };
  ncclComm_t rest = nullptr;
  player.expect_death(without({1}, &rest), kSecond);
  player.expect_success(without({std::min(1, kSecond), std::max(1, kSecond)}, &rest));
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  if (rest == nullptr) return;
  player.expect_works(rest);
  EXPECT_EQ(ncclCommDestroy(rest), ncclSuccess);
}

template <int kSecond>
FaultScenario death_before_shrink(const char* name, std::vector<const char*> hosts = {}) {
  return {name,
          "rank 1 is killed, and another one before it joins the survivors",
          4,
          dies_before_a_shrink<kSecond>,
          2,
          {1, kSecond},
          std::move(hosts),
          4096,
          {{"WEFT_INIT_TIMEOUT", "20"}}};
}

FaultScenario two_deaths() {
  return {"survivors_shrink",
          "two ranks die one after the other; the survivors shrink and go on",
          4,
          survivors_shrink,
          2,
          {0, 1}};
}

FaultScenario death_before_part() {
  return {"dies_before_its_part",
          "rank 1 is killed when the others wait for it in the part of a split",
          3,
          dies_before_its_part,
          2,
          {1},
          {},
          4096,
          {{"NCCL_DEBUG", "INFO"}, {"WEFT_INIT_TIMEOUT", "20"}}};
}

FaultScenario too_long_stop() {
  return {"stops_for_too_long",
          "rank 1 is stopped for longer than WEFT_TIMEOUT=1",
          2,
          stops_for_too_long,
          3,
          {1},
          {},
          4096,
          {{"WEFT_TIMEOUT", "1"}}};
}

}  // namespace

std::vector<FaultScenario> death_scenarios() {
  return {
      {"dies_in_calls",
       "rank 1 is killed while all make calls of 4 KB",
       3,
       dies_in_calls<1>,
       2,
       {1}},
      {"dies_in_calls_rank0", "the same for rank 0", 3, dies_in_calls<0>, 2, {0}},
      {"dies_in_calls_1M", "the same for rank 1, 1 MB", 4, dies_in_calls<1>, 2, {1}, {}, 1 << 20},
      {"dies_in_calls_hosts",
       "the same for rank 1, every rank on its own host",
       3,
       dies_in_calls<1>,
       2,
       {1},
       kOwnHosts},
      {"dies_in_calls_hosts_rank0", "the same for rank 0", 3, dies_in_calls<0>, 2, {0}, kOwnHosts},
      {"dies_while_idle",
       "rank 1 is killed while the others are in no call",
       3,
       dies_while_idle<1>,
       2,
       {1}},
      {"dies_while_idle_hosts_rank0",
       "the same for rank 0, every rank on its own host",
       3,
       dies_while_idle<0>,
       2,
       {0},
       kOwnHosts},
      {"dies_before_a_chain",
       "rank 0 of host a dies; rank 1 of host b waits for it, rank 2 for 1",
       3,
       dies_before_a_chain,
       2,
       {0},
       {"a", "b", "b"}},
      {"dies_after_init",
       "rank 0 is killed when its init returns, the others may be in theirs",
       4,
       dies_after_init,
       2,
       {0}},
      {"dies_in_init",
       "rank 1 is killed inside its init (WEFT_INIT_TIMEOUT=2)",
       3,
       dies_in_init,
       4,
       {1},
       {},
       4096,
       {{"WEFT_INIT_TIMEOUT", "2"}},
       false,
       false},
      {"dies_in_split", "rank 1 is killed while the others split", 3, dies_in_split, 2, {1}},
      death_before_part(),
      {"dies_in_destroy", "rank 1 is killed while the others destroy", 3, dies_in_destroy, 2, {1}},
      {"maker_left",
       "the maker of the unique id, no rank, ends after init; then rank 1 dies",
       3,
       maker_left,
       2,
       {1}},
      {"maker_stopped",
       "rank 0, which made the unique id, is stopped; then rank 1 dies",
       3,
       maker_stopped,
       2,
       {0, 1}},
      {"stops_and_continues", "rank 1 is stopped for 2.5 s: nothing fails", 3, stops_and_continues},
      too_long_stop(),
      two_deaths(),
      death_before_shrink<2>("dies_before_a_shrink"),
      death_before_shrink<0>("dies_before_a_shrink_rank0"),
      death_before_shrink<3>("dies_before_a_shrink_hosts", kOwnHosts),
  };
}

}  // namespace weft::test
