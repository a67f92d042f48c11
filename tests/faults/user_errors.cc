// The hang zoo: calls of the user that do not fit together. Every rank concerned gets
// ncclInvalidUsage, and the text says who did what.
#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

#include "tests/faults/scenario.h"
#include "tests/support/patterns.h"

namespace weft::test {
namespace {

void expect_usage_error(Player& player, ncclComm_t comm, const Ending& ending,
                        const std::vector<std::string>& words) {
  player.expect_failure(ending, ncclInvalidUsage, words);
  Player::expect_known_to_all_threads();
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

std::string bytes_of(size_t bytes) { return "(^|[^0-9])" + std::to_string(bytes) + " bytes"; }

using Make = ncclResult_t (*)(Player& player, float* data, size_t count, ncclComm_t comm);

enum class Named { kBothRanks, kOneRank };

// All ranks make one call, which differs on rank 0. The text names rank 0 and one of the others, or
// at least the rank that noticed. A rank that only sent may return from it before anybody can know.
// Then its next call fails.
void disagree(Player& player, const char* name, Make make, std::vector<std::string> words,
              Named named = Named::kBothRanks) {
  if (named == Named::kBothRanks)
    words.insert(words.end(), {"(rank|peer) 0([^0-9]|$)", "(rank|peer) [12]([^0-9]|$)"});
  else
    words.emplace_back("rank [0-2] of 3|on rank [0-2]([^0-9]|$)");
  ncclComm_t comm = player.join();
  Ending ending = player.call(name, comm, [&] {
    return make(player, player.data().data(), player.bytes() / sizeof(float), comm);
  });
  if (ending.code == ncclSuccess) ending = player.all_reduce_until_failure(comm);
  expect_usage_error(player, comm, ending, words);
}

void different_kinds(Player& player) {
  disagree(player, "all_reduce or all_gather",
           [](Player& p, float* data, size_t count, ncclComm_t comm) {
             return p.rank() == 0
                        ? ncclAllReduce(data, data, count, ncclFloat32, ncclSum, comm, nullptr)
                        : ncclAllGather(data, p.data().data(), count / 2, ncclFloat32, comm,
                                        nullptr);
           },
           {"all_reduce", "all_gather"});
}

// Two calls in another order.
void different_order(Player& player) {
  disagree(player, "two calls",
           [](Player& p, float* data, size_t count, ncclComm_t comm) {
             const auto reduce = [&] {
               return ncclAllReduce(data, data, count, ncclFloat32, ncclSum, comm, nullptr);
             };
             const auto broadcast = [&] {
               return ncclBroadcast(data, data, count, ncclFloat32, 0, comm, nullptr);
             };
             const ncclResult_t first = p.rank() == 0 ? reduce() : broadcast();
             if (first != ncclSuccess) return first;
             return p.rank() == 0 ? broadcast() : reduce();
           },
           {"all_reduce", "broadcast"});
}

ncclResult_t broadcast_from_two(Player& player, float* data, size_t count, ncclComm_t comm) {
  return ncclBroadcast(data, data, count, ncclFloat32, player.rank() == 0 ? 0 : 1, comm, nullptr);
}

// Roots on one host receive nothing. They compare their calls without knowing each other's rank.
void different_roots(Player& player) {
  disagree(player, "broadcast", broadcast_from_two, {"broadcast", "root 0", "root 1"},
           Named::kOneRank);
}

void different_roots_hosts(Player& player) {
  disagree(player, "broadcast", broadcast_from_two, {"broadcast", "root 0", "root 1"});
}

// Ranks that only send learn it when they destroy, at the latest.
void different_roots_end(Player& player) {
  ncclComm_t comm = player.join();
  Ending ending = player.call("broadcast", comm, [&] {
    return broadcast_from_two(player, player.data().data(), player.bytes() / sizeof(float), comm);
  });
  const bool goes_on = ending.code == ncclSuccess;
  if (goes_on) ending = player.call("destroy", nullptr, [&] { return ncclCommDestroy(comm); });
  player.expect_failure(ending, ncclInvalidUsage, {"broadcast", "root 0", "root 1"});
  if (!goes_on) {
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  }
}

void different_reduce_roots(Player& player) {
  disagree(player, "reduce",
           [](Player& p, float* data, size_t count, ncclComm_t comm) {
             return ncclReduce(data, data, count, ncclFloat32, ncclSum, p.rank() == 0 ? 0 : 1, comm,
                               nullptr);
           },
           {"reduce", "root 0", "root 1"});
}

void different_counts(Player& player) {
  disagree(player, "all_reduce",
           [](Player& p, float* data, size_t count, ncclComm_t comm) {
             return ncclAllReduce(data, data, p.rank() == 0 ? count : count / 2, ncclFloat32,
                                  ncclSum, comm, nullptr);
           },
           {"all_reduce", bytes_of(player.bytes()), bytes_of(player.bytes() / 2)});
}

void one_count_is_zero(Player& player) {
  disagree(player, "all_reduce",
           [](Player& p, float* data, size_t count, ncclComm_t comm) {
             const ncclResult_t first = ncclAllReduce(data, data, p.rank() == 0 ? 0 : count,
                                                      ncclFloat32, ncclSum, comm, nullptr);
             if (first != ncclSuccess) return first;
             return ncclAllReduce(data, data, 2 * count / 4, ncclFloat32, ncclSum, comm, nullptr);
           },
           {"all_reduce", bytes_of(player.bytes()), bytes_of(player.bytes() / 2)});
}

void different_types(Player& player) {
  disagree(player, "all_reduce",
           [](Player& p, float* data, size_t count, ncclComm_t comm) {
             return ncclAllReduce(data, data, count, p.rank() == 0 ? ncclFloat32 : ncclInt32,
                                  ncclSum, comm, nullptr);
           },
           {"all_reduce", "type float32", "type int32"});
}

void different_types_of_equal_bytes(Player& player) {
  disagree(player, "broadcast",
           [](Player& p, float* data, size_t count, ncclComm_t comm) {
             return p.rank() == 0
                        ? ncclBroadcast(data, data, count, ncclFloat32, 0, comm, nullptr)
                        : ncclBroadcast(data, data, 4 * count, ncclInt8, 0, comm, nullptr);
           },
           {"broadcast", "type float32", "type int8"});
}

void different_operators(Player& player) {
  disagree(player, "all_reduce",
           [](Player& p, float* data, size_t count, ncclComm_t comm) {
             return ncclAllReduce(data, data, count, ncclFloat32, p.rank() == 0 ? ncclSum : ncclMax,
                                  comm, nullptr);
           },
           {"all_reduce", "op sum", "op max"});
}

// Rank 1 makes no call.
void missing_call(Player& player) {
  ncclComm_t comm = player.join();
  if (player.rank() == 1) {
    player.stage().await(Stage::kDone, 20);
    EXPECT_EQ(player.async_error(comm, 5).code, ncclRemoteError);
    ncclCommAbort(comm);
    return;
  }
  const Ending ending = player.all_reduce(comm);
  player.stage().mark(Stage::kDone);
  player.expect_failure(
      ending, ncclRemoteError,
      {"rank [02] of 3", "(rank|peer) 1([^0-9]|$)", "all_reduce", bytes_of(player.bytes()),
       "WEFT_TIMEOUT", "since [0-9:.]{12} UTC", "type float32[)], lane [0-9]+, step [0-9]+",
       "[(]communicator [0-9a-f]{16}, host [^ ]+, pid [0-9]+[)]"});
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

// Every rank begins with another communicator of all ranks. The first two are a deadlock. A third
// one, which comes later, waits in vain until they give up.
void opposite_order(Player& player) {
  const int n = player.nranks();
  std::vector<ncclComm_t> comms;
  for (int c = 0; c < n; c++) comms.push_back(player.join(c));
  player.stage().meet(0, n);
  const auto own = static_cast<size_t>(player.rank());
  pause_ms(player.rank() > 1 ? 500 : 0);
  const Ending ending = player.all_reduce(comms[own]);
  if (own > 1) {
    EXPECT_EQ(ending.code, ncclRemoteError) << ending.text;
    EXPECT_TRUE(says(ending.text, "rank [01] aborted|peer [01] .*that peer has left"))
        << ending.text;
    EXPECT_EQ(ncclCommAbort(comms[own]), ncclSuccess);
  } else {
    const auto waits = [&](int rank) {
      return "rank " + std::to_string(rank) + " of " + std::to_string(n) + " [(]host [^ ]+, pid " +
             std::to_string(player.stage().pid(rank)) + "[)] waits for rank " +
             std::to_string(1 - rank) +
             " in operation 0, all_reduce.* of communicator [0-9a-f]{16}";
    };
    // Other threads may read of the other communicators, which fail later.
    player.expect_failure(ending, ncclInvalidUsage, {"deadlock", waits(0), waits(1)});
    EXPECT_EQ(ncclCommAbort(comms[own]), ncclSuccess);
  }
  for (size_t c = 0; c < comms.size(); c++)
    if (c != own) {
      EXPECT_EQ(ncclCommAbort(comms[c]), ncclSuccess);
    }
}

// Rank r has a communicator with the rank before it and one with the rank behind it, and begins
// with the latter.
void circle_of_pairs(Player& player) {
  const int n = player.nranks(), rank = player.rank();
  ncclComm_t before = nullptr, behind = nullptr;
  const auto join = [&](int pair) {  // ranks `pair` and the next one
    ncclComm_t comm = nullptr;
    const ncclUniqueId id = player.id(pair, pair);
    EXPECT_EQ(ncclCommInitRank(&comm, 2, id, rank == pair ? 0 : 1), ncclSuccess);
    return comm;
  };
  for (int pair = 0; pair < n; pair++) {
    if (pair == rank) behind = join(pair);
    if ((pair + 1) % n == rank) before = join(pair);
  }
  player.stage().meet(0, n);
  const Ending ending = player.all_reduce(behind);
  std::vector<std::string> words = {"deadlock", "of communicator [0-9a-f]{16}"};
  for (int r = 0; r < n; r++)
    words.push_back("pid " + std::to_string(player.stage().pid(r)) +
                    "[)] waits for rank 1 in operation 0, all_reduce");
  player.expect_failure(ending, ncclInvalidUsage, words);
  EXPECT_EQ(ncclCommAbort(behind), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(before), ncclSuccess);
}

// The same order on all ranks, but every rank comes 1.5 s later than the one before it.
void one_order_but_late(Player& player) {
  const int n = player.nranks();
  std::vector<ncclComm_t> comms;
  for (int c = 0; c < n; c++) comms.push_back(player.join(c));
  pause_ms(1500 * player.rank());
  for (ncclComm_t comm : comms) player.expect_success(player.all_reduce(comm));
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// The main threads wait for each other in two communicators until other threads of theirs, which
// have made no call before, come and send.
void two_threads_late(Player& player) {
  ncclComm_t comms[2] = {player.join(0), player.join(1)};
  const int rank = player.rank(), peer = 1 - rank;
  std::thread worker([&] {
    pause_ms(3500);
    const float value = 1;
    EXPECT_EQ(ncclSend(&value, 1, ncclFloat32, peer, comms[rank], nullptr), ncclSuccess);
  });
  player.expect_success(player.call("receive", comms[peer], [&] {
    return ncclRecv(player.data().data(), 1, ncclFloat32, peer, comms[peer], nullptr);
  }));
  worker.join();
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

void send_without_receive(Player& player) {
  ncclComm_t comm = player.join();
  Ending ending;
  if (player.rank() == 0)
    ending = player.call("send", comm, [&] {
      return ncclSend(player.data().data(), 64, ncclFloat32, 1, comm, nullptr);
    });
  if (ending.code == ncclSuccess) ending = player.all_reduce(comm);
  // Nobody takes the message, so it shows when the communicator ends.
  player.expect_success(ending);
  ending = player.call("destroy", nullptr, [&] { return ncclCommDestroy(comm); });
  // Rank 0 may be gone before rank 1 looks.
  if (player.rank() == 0) return player.expect_success(ending);
  player.expect_failure(ending, ncclInvalidUsage,
                        {"send of 256 bytes|1 of 1 sends", "from rank 0", "to rank 1"});
}

void send_and_receive(Player& player, size_t received, ncclDataType_t type,
                      std::vector<std::string> words) {
  // The receiver compares.
  words.insert(words.end(), {"rank 1 of 2", "peer 0([^0-9]|$)", "sendrecv"});
  ncclComm_t comm = player.join();
  const size_t count = player.bytes() / sizeof(float);
  Ending ending = player.call("send or recv", comm, [&] {
    return player.rank() == 0 ? ncclSend(player.data().data(), count, ncclFloat32, 1, comm, nullptr)
                              : ncclRecv(player.data().data(), received, type, 0, comm, nullptr);
  });
  if (ending.code == ncclSuccess && player.rank() == 0) ending = player.async_error(comm, 2);
  expect_usage_error(player, comm, ending, words);
}

void receive_of_another_size(Player& player) {
  send_and_receive(player, player.bytes() / 8, ncclFloat32,
                   {bytes_of(player.bytes()), bytes_of(player.bytes() / 2)});
}

void receive_of_another_type(Player& player) {
  send_and_receive(player, player.bytes(), ncclInt8, {"type int8", "type float32"});
}

void different_numbers_of_ranks(Player& player) {
  const ncclUniqueId id = player.id(0, 0);
  ncclComm_t comm = nullptr;
  const Ending ending = player.call("init", nullptr, [&] {
    return ncclCommInitRank(&comm, player.nranks() + (player.rank() == 1 ? 1 : 0), id,
                            player.rank());
  });
  player.expect_failure(ending, ncclInvalidUsage,
                        {"rank [01] says", "3 ranks, others say 2|2 ranks, others say 3"});
}

void same_rank_twice(Player& player) {
  const ncclUniqueId id = player.id(0, 0);
  ncclComm_t comm = nullptr;
  const Ending ending =
      player.call("init", nullptr, [&] { return ncclCommInitRank(&comm, player.nranks(), id, 0); });
  player.expect_failure(ending, ncclInvalidUsage, {"rank 0", "twice|already"});
}

// Rank 1 forgets ncclGroupEnd and destroys.
void group_left_open(Player& player) {
  ncclComm_t comm = player.join();
  if (player.rank() == 1) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(player.all_reduce(comm).code, ncclSuccess);
    player.stage().mark(Stage::kFault);
    EXPECT_NE(ncclCommDestroy(comm), ncclSuccess) << "it has calls that were never launched";
    Player::leave_without_destroy();
  }
  pause_ms(100);
  const Ending ending = player.all_reduce(comm);
  player.expect_failure(ending, ncclRemoteError, {"(rank|peer) 1([^0-9]|$)"});
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

std::vector<FaultScenario> calls_that_differ() {
  return {
      {"different_kinds", "all_reduce on rank 0, all_gather on the others", 3, different_kinds},
      {"different_order", "two calls in another order on rank 0", 3, different_order},
      {"different_order_1M", "the same, 1 MB", 3, different_order, 2, {}, {}, 1 << 20},
      {"different_roots", "broadcast of 4 KB with two roots", 3, different_roots},
      {"different_roots_1M",
       "broadcast of 1 MB with two roots",
       3,
       different_roots,
       2,
       {},
       {},
       1 << 20},
      {"different_roots_hosts",
       "broadcast with two roots, every rank on its own host",
       3,
       different_roots_hosts,
       2,
       {},
       kOwnHosts},
      {"different_roots_end", "broadcast with two roots, then destroy", 3, different_roots_end},
      {"different_roots_end_hosts",
       "the same, every rank on its own host",
       3,
       different_roots_end,
       2,
       {},
       kOwnHosts},
      {"different_reduce_roots", "reduce with two roots", 3, different_reduce_roots},
      {"different_counts", "all_reduce, rank 0 has twice the count", 3, different_counts},
      {"one_count_is_zero", "all_reduce, rank 0 has count 0; then another call", 3,
       one_count_is_zero},
      {"different_types", "all_reduce of float and int", 3, different_types},
      {"different_types_of_equal_bytes", "broadcast of float and int8, equal bytes", 3,
       different_types_of_equal_bytes},
      {"different_operators", "all_reduce with sum and max", 3, different_operators},
      {"missing_call",
       "rank 1 makes no call (WEFT_TIMEOUT=1)",
       3,
       missing_call,
       3,
       {},
       {},
       4096,
       {{"WEFT_TIMEOUT", "1"}}},
  };
}

std::vector<FaultScenario> waits_in_vain() {
  return {
      {"opposite_order", "two communicators in opposite order", 2, opposite_order, 4},
      {"opposite_order_hosts",
       "the same, every rank on its own host",
       2,
       opposite_order,
       4,
       {},
       kOwnHosts},
      {"three_orders", "three communicators of all ranks, rank r begins with number r", 3,
       opposite_order, 4},
      {"circle_of_pairs", "pairs of ranks: 0 waits for 1, 1 for 2, 2 for 0", 3, circle_of_pairs, 4},
      {"circle_of_pairs_hosts",
       "the same with five ranks, every rank on its own host",
       5,
       circle_of_pairs,
       4,
       {},
       kOwnHosts},
      {"one_order_but_late",
       "three communicators in one order, ranks come 1.5 s late: nothing fails", 3,
       one_order_but_late, 12},
      {"two_threads_late",
       "threads wait for each other until other threads of theirs come: nothing fails", 2,
       two_threads_late, 5},
      {"send_without_receive", "a send that nobody receives, then destroy", 2,
       send_without_receive},
      {"send_without_receive_hosts",
       "the same, every rank on its own host",
       2,
       send_without_receive,
       2,
       {},
       kOwnHosts},
      {"receive_of_another_size", "send of n, recv of n/2", 2, receive_of_another_size, 3},
      {"receive_of_another_type", "send of float, recv of int8, equal bytes", 2,
       receive_of_another_type, 3},
      {"different_numbers_of_ranks",
       "rank 1 joins with one rank more",
       2,
       different_numbers_of_ranks,
       3,
       {},
       {},
       4096,
       {{"WEFT_INIT_TIMEOUT", "5"}}},
      {"same_rank_twice",
       "two processes join as rank 0",
       2,
       same_rank_twice,
       3,
       {},
       {},
       4096,
       {{"WEFT_INIT_TIMEOUT", "5"}}},
      {"group_left_open", "rank 1 leaves a group open and destroys", 2, group_left_open, 3, {1}},
  };
}

}  // namespace

std::vector<FaultScenario> user_error_scenarios() {
  std::vector<FaultScenario> all = calls_that_differ(), later = waits_in_vain();
  for (FaultScenario& one : later) {
    one.one_thread = one.play == opposite_order || one.play == circle_of_pairs;
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace weft::test
