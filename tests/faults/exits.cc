// Ranks that leave: with and without a goodbye, by abort and by revoke. Finished work stays
// finished, other work ends.
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "tests/faults/scenario.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

// Every rank exits after its last call. None of these calls fails.
void exits_after_last_call(Player& player) {
  ncclComm_t comm = player.join();
  for (int i = 0; i < 3; i++) player.expect_success(player.all_reduce(comm));
  Player::leave_without_destroy();
}

void exits_after_last_send(Player& player) {
  ncclComm_t comm = player.join();
  player.stage().meet(0, player.nranks());
  int word = player.rank() == 0 ? 7 : 0;
  if (player.rank() == 0) {
    player.expect_success(
        player.call("send", comm, [&] { return ncclSend(&word, 1, ncclInt32, 1, comm, nullptr); }));
  } else {
    pause_ms(20);
    player.expect_success(
        player.call("recv", comm, [&] { return ncclRecv(&word, 1, ncclInt32, 0, comm, nullptr); }));
    EXPECT_EQ(word, 7);
  }
  Player::leave_without_destroy();
}

// Rank 1 exits in the middle of the job. The others' next call cannot succeed.
void exits_in_the_middle(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  player.stage().meet(0, player.nranks());
  if (player.rank() == 1) {
    player.stage().mark(Stage::kFault);
    Player::leave_without_destroy();
  }
  player.stage().await(Stage::kFault);
  player.expect_death(player.all_reduce(comm), 1);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

// Rank 1 destroys its communicator, the others make one more call.
void destroys_early(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  player.stage().meet(0, player.nranks());
  if (player.rank() == 1) {
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    player.stage().mark(Stage::kFault);
    player.stage().await(Stage::kDone, 10);
    return;
  }
  player.stage().await(Stage::kFault);
  const Ending ending = player.all_reduce(comm);
  player.stage().mark(Stage::kDone);
  player.expect_failure(ending, ncclRemoteError, {"(rank|peer) 1([^0-9]|$)", "left"});
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

// Rank 0 aborts from another thread while its own call waits. Rank 1 is in no call.
void aborts_a_waiting_call(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  if (player.rank() == 1) {
    player.stage().await(Stage::kFault);
    player.expect_failure(player.async_error(comm, 8), ncclRemoteError, {"rank 0", "abort"});
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    return;
  }
  std::thread aborts([&] {
    pause_ms(300);
    player.stage().mark(Stage::kFault);
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    player.expect_within("abort", player.stage().since(Stage::kFault), 2);
  });
  const Ending ending = player.call("all_reduce", nullptr, [&] {
    return ncclAllReduce(player.data().data(), player.data().data(), 10, ncclFloat32, ncclSum, comm,
                         nullptr);
  });
  EXPECT_NE(ending.code, ncclSuccess);
  aborts.join();
}

// An init that misses a rank can be aborted. Nothing stays behind.
void aborts_an_init(Player& player) {
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  pause_ms(200);
  player.stage().mark(Stage::kFault);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  player.expect_within("abort", player.stage().since(Stage::kFault), 2);
}

// One rank never comes to the init.
void misses_the_init(Player& player) {
  const ncclUniqueId id = player.id(0, 0);
  if (player.rank() == player.nranks() - 1) {
    player.stage().await(Stage::kDone, 10);
    return;
  }
  ncclComm_t comm = nullptr;
  const Ending ending = player.call(
      "init", nullptr, [&] { return ncclCommInitRank(&comm, player.nranks(), id, player.rank()); });
  player.stage().mark(Stage::kDone);
  player.expect_failure(ending, ncclSystemError, {"WEFT_INIT_TIMEOUT", "rank"});
}

// One rank is late by more than a stall warning, and then comes.
void comes_late(Player& player) {
  ncclComm_t comm = player.join();
  if (player.rank() == 1) pause_ms(1500);
  player.expect_success(player.all_reduce(comm));
  // Ranks compare their calls after a second. Equal calls of every kind must not look different.
  const auto late = [&](const char* name, const std::function<ncclResult_t()>& fn) {
    if (player.rank() == 1) pause_ms(1200);
    player.expect_success(player.call(name, comm, fn));
  };
  std::vector<int16_t> in(64), out(128);
  late("all_gather",
       [&] { return ncclAllGather(in.data(), out.data(), 64, ncclFloat16, comm, nullptr); });
  late("broadcast",
       [&] { return ncclBroadcast(in.data(), out.data(), 64, ncclBfloat16, 1, comm, nullptr); });
  late("reduce", [&] {
    return ncclReduce(in.data(), out.data(), 64, ncclFloat16, ncclAvg, 0, comm, nullptr);
  });
  late("reduce_scatter", [&] {
    return ncclReduceScatter(out.data(), in.data(), 64, ncclFloat16, ncclMin, comm, nullptr);
  });
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// A revoked communicator ends calls and can be shrunk.
void revokes(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  player.stage().meet(0, player.nranks());
  if (player.rank() == 0) {
    std::thread revoker([&] {
      pause_ms(200);
      EXPECT_EQ(ncclCommRevoke(comm, 0), ncclSuccess);
      player.stage().mark(Stage::kFirst);
    });
    EXPECT_NE(player.all_reduce(comm).code, ncclSuccess);
    revoker.join();
  } else {
    player.stage().await(Stage::kFirst);
    EXPECT_EQ(ncclCommRevoke(comm, 0), ncclSuccess);
  }
  const int last = player.nranks() - 1;
  if (player.rank() != last) {
    ncclComm_t rest = nullptr;
    player.expect_success(player.call("shrink", nullptr, [&] {
      int excluded = last;
      return ncclCommShrink(comm, &excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT);
    }));
    if (rest != nullptr) {
      player.expect_works(rest);
      EXPECT_EQ(ncclCommDestroy(rest), ncclSuccess);
    }
  }
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// Rank 0 aborts, rank 1 is in a call. Then both make the next communicator, three times.
void joins_again(Player& player) {
  for (int i = 0; i < 3; i++) {
    ncclComm_t comm = player.join(i);
    player.expect_works(comm);
    player.stage().meet(i, player.nranks());
    if (player.rank() == 1) {
      EXPECT_EQ(player.all_reduce(comm).code, ncclRemoteError);
    }
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  }
}

}  // namespace

std::vector<FaultScenario> exit_scenarios() {
  return {
      {"exits_after_last_call", "all ranks exit after their last call, without destroy", 4,
       exits_after_last_call},
      {"exits_after_last_call_hosts",
       "the same, every rank on its own host",
       3,
       exits_after_last_call,
       2,
       {},
       kOwnHosts,
       65536},
      {"exits_after_last_send", "the sender exits at once, the receiver comes later", 2,
       exits_after_last_send},
      {"exits_in_the_middle",
       "rank 1 exits without destroy, the others make a call",
       3,
       exits_in_the_middle,
       2,
       {1}},
      {"destroys_early", "rank 1 destroys, the others make a call", 3, destroys_early, 3},
      {"aborts_a_waiting_call", "rank 0 aborts while its call waits", 2, aborts_a_waiting_call},
      {"aborts_an_init", "an init without its peer is aborted", 1, aborts_an_init},
      {"misses_the_init",
       "a rank does not come to the init (WEFT_INIT_TIMEOUT=1)",
       3,
       misses_the_init,
       3,
       {},
       {},
       4096,
       {{"WEFT_INIT_TIMEOUT", "1"}}},
      {"comes_late",
       "rank 1 is 1.5 s late (WEFT_STALL_WARNING=0.5): nothing fails",
       2,
       comes_late,
       2,
       {},
       {},
       4096,
       {{"WEFT_STALL_WARNING", "0.5"}}},
      {"revokes", "rank 0 revokes while its call waits; all but one shrink and go on", 3, revokes},
      {"joins_again", "rank 0 aborts while rank 1 is in a call, three communicators in turn", 2,
       joins_again},
  };
}

}  // namespace weft::test
