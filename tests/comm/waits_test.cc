// Every wait can end, and its message names the peer: time-outs, peers that left, warnings.
#include <gtest/gtest.h>

#include <thread>

#include "tests/comm/checks.h"
#include "tests/support/environment.h"
#include "tests/support/log_file.h"
#include "tests/support/patterns.h"
#include "tests/support/processes.h"
#include "tests/support/sampling.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

std::string last_error(ncclComm_t comm) { return ncclGetLastError(comm); }

// On a busy machine other ranks may be late as well, and the message names them. A longer time-out
// then shows which rank never calls.
const char* const kTimeouts[] = {"0.3", "3", "20"};

TEST(Timeout, EndsAWaitForAPeerThatDoesNotComeAndNamesIt) {
  for (const size_t count : {size_t{1}, size_t{300000}}) {
    bool named = false;
    std::string texts[2];
    for (const char* timeout : kTimeouts) {
      const ScopedEnvironment environment{{"WEFT_TIMEOUT", timeout}};
      const CommSet set(3);
      run_threads(2, [&](int rank) {  // rank 2 never calls
        std::vector<float> data(count, 1.0f);
        EXPECT_EQ(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, set[rank],
                                nullptr),
                  ncclRemoteError);
        texts[rank] = last_error(set[rank]);
      });
      // The rank that gives up first informs the other.
      named = says(texts[0] + texts[1],
                   "for data of peer 2 .*all_reduce.*lane [0-9]+, step [0-9]+.*WEFT_TIMEOUT");
      if (named) break;
    }
    EXPECT_TRUE(named) << texts[0] << '\n' << texts[1];
  }
}

TEST(Timeout, EndsAnInitThatMissesARank) {
  std::string text;
  for (const char* timeout : kTimeouts) {
    const ScopedEnvironment environment{{"WEFT_INIT_TIMEOUT", timeout}};
    const ncclUniqueId id = new_unique_id();
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 0), ncclSystemError);
    text = last_error(nullptr);
    if (says(text, "not all ranks")) break;
  }
  EXPECT_TRUE(says(text, "not all ranks.*2 are needed.*WEFT_INIT_TIMEOUT")) << text;
}

TEST(Timeout, EndsAnInitWithoutARendezvous) {
  const ScopedEnvironment environment{{"NCCL_COMM_ID", "127.0.0.1:1"},
                                      {"WEFT_INIT_TIMEOUT", "0.5"}};
  const ncclUniqueId id = new_unique_id();
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 1), ncclSystemError);
  EXPECT_TRUE(says(last_error(nullptr), "127.0.0.1:1.*WEFT_INIT_TIMEOUT")) << last_error(nullptr);
}

TEST(PeerThatLeft, EndsAWaitForIt) {
  run_ranks_as_threads(2, [](int rank, ncclComm_t comm) {
    if (rank == 1) return;  // destroys its communicator
    int value = 0;
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr), ncclRemoteError);
    EXPECT_TRUE(says(last_error(comm), "peer 1.*has left")) << last_error(comm);
  });
}

TEST(StallWarning, NamesThePeerWhileTheWaitGoesOn) {
  const ScopedEnvironment environment{{"WEFT_STALL_WARNING", "0.1"}};
  const LogFile file("stall-test", ncclResetDebugInit);
  const auto warned = [&] {
    return says(file.text(), "NCCL WARN rank 0 .*peer 1.*for [0-9]+ s already");
  };
  run_ranks_as_threads(2, [&](int rank, ncclComm_t comm) {
    const auto limit = std::chrono::steady_clock::now() + patience(std::chrono::seconds(30));
    while (rank == 1 && !warned() && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    expect_all_reduce_works(comm, 100);
  });
  EXPECT_TRUE(warned());
}

TEST(StallWarning, GoesToStderrOncePerWaitIfWarningsAreHidden) {
  const ScopedEnvironment environment{{"WEFT_STALL_WARNING", "0.1"}, {"NCCL_DEBUG", std::nullopt}};
  ncclResetDebugInit();
  testing::internal::CaptureStderr();
  run_ranks_as_threads(2, [&](int rank, ncclComm_t comm) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    expect_all_reduce_works(comm, 100);
  });
  const std::string text = testing::internal::GetCapturedStderr();
  const char* const pattern =
      "rank 0 of 2: waiting for data of peer 1 since ..:..:..[.]... UTC in operation 0 .all_reduce "
      "of "
      "400 bytes, type .*already";
  EXPECT_TRUE(says(text, pattern)) << text;
  EXPECT_EQ(text.find("already"), text.rfind("already")) << text;
}

// Processes of separate hosts have spare cores: helper threads drive their large operations too.
WEFT_SCENARIO(alone_with_helpers) {
  ncclComm_t comm = nullptr;
  WEFT_OK(ncclCommInitRank(&comm, 2, context.ids.at(0), context.rank));
  expect_all_reduce_works(comm, 500000);
  if (context.rank == 0) {
    std::vector<float> data(500000, 1.0f);
    EXPECT_EQ(
        ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr),
        ncclRemoteError);
    EXPECT_TRUE(says(last_error(comm),
                     context.argument == "leave" ? "peer 1.*has left" : "peer 1.*WEFT_TIMEOUT"))
        << last_error(comm);
    WEFT_OK(ncclCommAbort(comm));
    return;
  }
  // Waits until it learns that the other rank has given up.
  ncclResult_t state = ncclSuccess;
  while (context.argument != "leave" && state == ncclSuccess) {
    WEFT_OK(ncclCommGetAsyncError(comm, &state));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  WEFT_OK(ncclCommDestroy(comm));
}

ProcessOptions with_helpers(const std::string& argument, const std::string& timeout) {
  ProcessOptions options;
  options.argument = argument;
  options.environment = [timeout](int rank) {
    auto environment = separate_hosts(rank);
    environment["WEFT_WORKERS"] = "2";
    if (!timeout.empty()) environment["WEFT_TIMEOUT"] = timeout;
    return environment;
  };
  return options;
}

TEST(HelperThreads, DoNotKeepAWaitForAPeerThatLeftFromEnding) {
  run_ranks_as_processes("alone_with_helpers", 2, with_helpers("leave", ""));
}

TEST(HelperThreads, DoNotKeepAWaitForAPeerThatStaysAwayFromEnding) {
  // A short time-out may be too short even for the all_reduce that must work.
  ProcessOptions options = with_helpers("stay", "0.5");
  options.limit = std::chrono::seconds(20);
  const auto results = run_processes("alone_with_helpers", 2, options);
  if (results[0].exit_code == 0 && results[1].exit_code == 0) return;
  run_ranks_as_processes("alone_with_helpers", 2, with_helpers("stay", "15"));
}

}  // namespace
}  // namespace weft::test
