// See player.h.
#include "tests/faults/player.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "tests/faults/judge.h"
#include "tests/faults/scenario.h"
#include "tests/support/patterns.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Time bounds are the library's promises. Only sanitizers and a slow machine stretch them.
double stretched(double seconds) {
  const auto normal = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  return std::chrono::duration<double>(patience(normal)).count();
}

}  // namespace

Player::Player(int rank, const FaultScenario& scenario, Stage& stage)
    : rank_(rank),
      scenario_(scenario),
      stage_(stage),
      data_(scenario.bytes / sizeof(float) * static_cast<size_t>(scenario.ranks), 1.0f) {
  stage_.set_pid(rank, getpid());
}

int Player::nranks() const { return scenario_.ranks; }

size_t Player::bytes() const { return scenario_.bytes; }

bool Player::is_victim() const {
  for (const int victim : scenario_.victims)
    if (victim == rank_) return true;
  return false;
}

ncclUniqueId Player::id(int number, int maker) {
  if (rank_ != maker) return stage_.take(number);
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess) << ncclGetLastError(nullptr);
  stage_.give(number, id);
  return id;
}

ncclComm_t Player::join(int number, int maker) {
  const ncclUniqueId id = this->id(number, maker);
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, nranks(), id, rank_), ncclSuccess) << ncclGetLastError(nullptr);
  return comm;
}

Ending Player::call(const std::string& name, ncclComm_t comm,
                    const std::function<ncclResult_t()>& fn) {
  const auto begin = Clock::now();
  Ending ending{name, fn(), 0, ""};
  ending.seconds =
      stage_.has(Stage::kFault) ? std::min(stage_.since(Stage::kFault), 1e9) : seconds_since(begin);
  ending.text = ncclGetLastError(comm);
  return ending;
}

Ending Player::all_reduce(ncclComm_t comm) {
  return call("all_reduce", comm, [&] {
    return ncclAllReduce(data_.data(), data_.data(), bytes() / sizeof(float), ncclFloat32, ncclMax,
                         comm, nullptr);
  });
}

Ending Player::all_reduce_until_failure(ncclComm_t comm) {
  for (;;)
    if (Ending ending = all_reduce(comm); ending.code != ncclSuccess) return ending;
}

Ending Player::async_error(ncclComm_t comm, double seconds) {
  return call("ncclCommGetAsyncError", comm, [&] {
    const auto begin = Clock::now();
    ncclResult_t state = ncclSuccess;
    while (seconds_since(begin) < seconds) {
      const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
      if (asked != ncclSuccess) return asked;
      if (state != ncclSuccess && state != ncclInProgress) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return state;
  });
}

void Player::expect_works(ncclComm_t comm) {
  int ranks = 0, rank = 0;
  EXPECT_EQ(ncclCommCount(comm, &ranks), ncclSuccess);
  EXPECT_EQ(ncclCommUserRank(comm, &rank), ncclSuccess);
  std::vector<int> values(1000, rank + 1);
  expect_success(call("all_reduce", comm, [&] {
    return ncclAllReduce(values.data(), values.data(), values.size(), ncclInt32, ncclSum, comm,
                         nullptr);
  }));
  EXPECT_EQ(values.back(), ranks * (ranks + 1) / 2);
}

void Player::expect_success(const Ending& ending) {
  EXPECT_EQ(ending.code, ncclSuccess) << ending.call << ": " << ending.text;
}

void Player::expect_failure(const Ending& ending, ncclResult_t code,
                            const std::vector<std::string>& words) {
  EXPECT_EQ(ending.code, code) << ending.call << ": " << ending.text;
  const std::string any = ncclGetLastError(nullptr);
  for (const std::string& word : words) {
    EXPECT_TRUE(says(ending.text, word.c_str())) << word << " is not in: " << ending.text;
    EXPECT_TRUE(says(any, word.c_str())) << word << " is not in ncclGetLastError(NULL): " << any;
  }
  expect_within(ending.call, ending.seconds, scenario_.bound_s);
  print_record("comm", ending.code, ending.text);
}

void Player::expect_death(const Ending& ending, int victim, std::vector<std::string> more) {
  more.push_back("rank " + std::to_string(victim) + "([^0-9]|$)");
  more.push_back("(^|[^0-9])" + std::to_string(stage_.pid(victim)) + "([^0-9]|$)");
  expect_failure(ending, ncclRemoteError, more);
  expect_known_to_all_threads();
}

void Player::expect_known_to_all_threads() {
  const std::string here = ncclGetLastError(nullptr);
  std::string there;
  std::thread([&] { there = ncclGetLastError(nullptr); }).join();
  EXPECT_EQ(there, here);
}

void Player::expect_within(const std::string& what, double seconds, double limit) {
  EXPECT_LE(seconds, stretched(limit)) << what << " took too long";
  std::printf("TOOK %.3f\n", seconds);
}

void Player::die() {
  stage_.mark(Stage::kFault);
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

void Player::leave_without_destroy() {
  const bool failed = testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed();
  std::fflush(stdout);
  std::_Exit(failed ? 1 : 0);
}

}  // namespace weft::test
