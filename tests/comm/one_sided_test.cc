// Windows and one-sided calls in host mode: ranks as threads, as processes, and on several hosts.
#include "tests/support/one_sided.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "tests/comm/checks.h"
#include "tests/support/environment.h"
#include "tests/support/processes.h"
#include "tests/support/threads.h"

extern "C" {
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void** outPtr);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int rank, void** outPtr);
}

namespace weft::test {
namespace {

// Memory from ncclMemAlloc in a window.
class WindowMemory {
 public:
  WindowMemory(ncclComm_t comm, size_t bytes) : comm_(comm), bytes_(bytes) {
    WEFT_OK(ncclMemAlloc(&memory_, bytes));
    std::memset(memory_, 0xee, bytes);
    WEFT_OK(ncclCommWindowRegister(comm, memory_, bytes, &window_, NCCL_WIN_COLL_SYMMETRIC));
  }
  ~WindowMemory() {
    WEFT_OK(ncclCommWindowDeregister(comm_, window_));
    WEFT_OK(ncclMemFree(memory_));
  }
  WindowMemory(const WindowMemory&) = delete;
  WindowMemory& operator=(const WindowMemory&) = delete;
  ncclWindow_t window() const { return window_; }
  char* data() const { return static_cast<char*>(memory_); }
  size_t size() const { return bytes_; }

 private:
  ncclComm_t comm_;
  size_t bytes_;
  void* memory_ = nullptr;
  ncclWindow_t window_ = nullptr;
};

char value_of(int from, int to, int round, size_t i) {
  return static_cast<char>(from * 31 + to * 7 + round * 3 + static_cast<int>(i % 251));
}

ncclResult_t wait_for(ncclComm_t comm, int peer, int signals = 1) {
  ncclWaitSignalDesc_t desc{signals, peer, 0, 0};
  return ncclWaitSignal(1, &desc, comm, nullptr);
}

// Every rank signals every rank, itself too.
void barrier(ncclComm_t comm) {
  const int n = size_of(comm);
  WEFT_OK(ncclGroupStart());
  for (int r = 0; r < n; r++) WEFT_OK(ncclSignal(r, 0, 0, 0, comm, nullptr));
  WEFT_OK(ncclGroupEnd());
  std::vector<ncclWaitSignalDesc_t> all;
  for (int r = 0; r < n; r++) all.push_back({1, r, 0, 0});
  WEFT_OK(ncclWaitSignal(n, all.data(), comm, nullptr));
}

// Every rank writes a block into every rank's window, itself too.
void all_to_all(ncclComm_t comm, size_t block, int rounds) {
  const int n = size_of(comm), me = rank_of(comm);
  WindowMemory to(comm, block * static_cast<size_t>(n));
  std::vector<char> from(block * static_cast<size_t>(n));
  for (int round = 0; round < rounds; round++) {
    for (int r = 0; r < n; r++)
      for (size_t i = 0; i < block; i++)
        from[static_cast<size_t>(r) * block + i] = value_of(me, r, round, i);
    barrier(comm);  // everybody has read what came before
    WEFT_OK(ncclGroupStart());
    for (int r = 0; r < n; r++)
      WEFT_OK(ncclPutSignal(from.data() + static_cast<size_t>(r) * block, block, ncclInt8, r,
                            to.window(), static_cast<size_t>(me) * block, 0, 0, 0, comm, nullptr));
    WEFT_OK(ncclGroupEnd());
    std::memset(from.data(), 0x55, from.size());  // it may be used again at once
    for (int r = 0; r < n; r++) WEFT_OK(wait_for(comm, r));
    size_t wrong = 0;
    for (int r = 0; r < n; r++)
      for (size_t i = 0; i < block; i++)
        wrong += to.data()[static_cast<size_t>(r) * block + i] != value_of(r, me, round, i);
    EXPECT_EQ(wrong, 0u) << "round " << round << ", blocks of " << block;
  }
  barrier(comm);
}

// Many writes to one peer without a wait: signals are counted, and they come after the data.
void one_way(ncclComm_t comm, int writes, size_t bytes) {
  const int me = rank_of(comm);
  WindowMemory to(comm, static_cast<size_t>(writes) * bytes);
  if (me == 0) {
    std::vector<char> from(bytes);
    for (int w = 0; w < writes; w++) {
      for (size_t i = 0; i < bytes; i++) from[i] = value_of(0, 1, w, i);
      WEFT_OK(ncclPutSignal(from.data(), bytes, ncclUint8, 1, to.window(),
                            static_cast<size_t>(w) * bytes, 0, 0, 0, comm, nullptr));
    }
  } else if (me == 1) {
    size_t wrong = 0;
    for (int w = 0; w < writes; w++) {
      WEFT_OK(wait_for(comm, 0));
      for (size_t i = 0; i < bytes; i++)
        wrong += to.data()[static_cast<size_t>(w) * bytes + i] != value_of(0, 1, w, i);
    }
    EXPECT_EQ(wrong, 0u);
  }
  barrier(comm);
}

void go_through(ncclComm_t comm) {
  all_to_all(comm, 1, 3);
  all_to_all(comm, 1000, 3);
  all_to_all(comm, 700001, 2);
  if (size_of(comm) > 1) one_way(comm, 200, 777);
  expect_all_reduce_works(comm, 1000);
}

TEST(OneSided, WorksBetweenThreads) {
  run_ranks_as_threads(3, [](int, ncclComm_t comm) { go_through(comm); });
}

TEST(OneSided, WorksForOneRank) {
  run_ranks_as_threads(1, [](int, ncclComm_t comm) { go_through(comm); });
}

WEFT_SCENARIO(one_sided) {
  with_communicator(context, [](ncclComm_t comm) { go_through(comm); });
}

TEST(OneSided, WorksBetweenProcesses) { run_ranks_as_processes("one_sided", 4); }

TEST(OneSided, WorksBetweenHosts) {
  ProcessOptions options;
  options.environment = separate_hosts;
  run_ranks_as_processes("one_sided", 3, options);
}

TEST(OneSided, WorksBetweenHostsOfSeveralProcesses) {
  ProcessOptions options;
  options.environment = [](int rank) { return separate_hosts(rank / 2); };
  run_ranks_as_processes("one_sided", 4, options);
}

// The writer needs no call of the other rank.
WEFT_SCENARIO(busy_target) {
  with_communicator(context, [&](ncclComm_t comm) {
    WindowMemory to(comm, size_t{8} << 20);
    if (context.rank == 0) {
      const std::vector<char> from(to.size(), 7);
      for (int i = 0; i < 4; i++)
        WEFT_OK(ncclPutSignal(from.data(), from.size(), ncclUint8, 1, to.window(), 0, 0, 0, 0, comm,
                              nullptr));
    }
    expect_all_reduce_works(comm);  // rank 1 has waited for no signal yet
    if (context.rank == 1) {
      WEFT_OK(wait_for(comm, 0, 4));
      EXPECT_EQ(to.data()[0], 7);
      EXPECT_EQ(to.data()[to.size() - 1], 7);
    }
  });
}

TEST(OneSided, TargetsNeedNotWait) {
  run_ranks_as_processes("busy_target", 2);
  ProcessOptions options;
  options.environment = separate_hosts;
  run_ranks_as_processes("busy_target", 2, options);
}

TEST(OneSided, OneThreadDrivesAllRanksInAGroup) {
  CommSet set(2);
  void* memory[2] = {};
  ncclWindow_t windows[2] = {};
  for (void*& m : memory) WEFT_OK(ncclMemAlloc(&m, 4096));
  WEFT_OK(ncclGroupStart());
  for (int r = 0; r < 2; r++)
    WEFT_OK(ncclCommWindowRegister(set[r], memory[r], 4096, &windows[r], NCCL_WIN_DEFAULT));
  WEFT_OK(ncclGroupEnd());
  ASSERT_NE(windows[0], nullptr);
  ASSERT_NE(windows[1], nullptr);
  const std::vector<char> from = {1, 2, 3};
  ncclWaitSignalDesc_t desc[2] = {{1, 1, 0, 0}, {1, 0, 0, 0}};
  WEFT_OK(ncclGroupStart());
  for (int r = 0; r < 2; r++) {
    WEFT_OK(ncclWaitSignal(1, &desc[r], set[r], nullptr));
    WEFT_OK(ncclPutSignal(from.data(), from.size(), ncclInt8, 1 - r, windows[r], 10, 0, 0, 0,
                          set[r], nullptr));
  }
  WEFT_OK(ncclGroupEnd());
  for (int r = 0; r < 2; r++)
    EXPECT_EQ(std::memcmp(static_cast<char*>(memory[r]) + 10, from.data(), 3), 0);
  for (int r = 0; r < 2; r++) {
    void* user = nullptr;
    WEFT_OK(ncclWinGetUserPtr(set[r], windows[r], &user));
    EXPECT_EQ(user, memory[r]);
    WEFT_OK(ncclCommWindowDeregister(set[r], windows[r]));
    EXPECT_NE(ncclWinGetUserPtr(set[r], windows[r], &user), ncclSuccess);
    WEFT_OK(ncclMemFree(memory[r]));
  }
}

TEST(OneSided, PointersReachPeers) {
  run_ranks_as_threads(2, [](int rank, ncclComm_t comm) {
    WindowMemory mine(comm, 8192);
    mine.data()[5] = static_cast<char>(rank + 1);
    barrier(comm);
    void* theirs = nullptr;
    WEFT_OK(ncclGetPeerDevicePointer(mine.window(), 5, 1 - rank, &theirs));
    ASSERT_NE(theirs, nullptr);
    EXPECT_EQ(*static_cast<char*>(theirs), 2 - rank);
    void* own = nullptr;
    WEFT_OK(ncclGetLsaDevicePointer(mine.window(), 0, 0, &own));
    EXPECT_EQ(own, mine.data());
    EXPECT_EQ(ncclGetPeerDevicePointer(mine.window(), 8192, 0, &own), ncclInvalidArgument);
    EXPECT_EQ(ncclGetPeerDevicePointer(mine.window(), 0, 2, &own), ncclInvalidArgument);
    EXPECT_EQ(ncclGetLsaDevicePointer(mine.window(), 0, 1, &own), ncclInvalidArgument);
    barrier(comm);
  });
}

// More windows than a process keeps mappings of a peer's memory for its calls.
WEFT_SCENARIO(many_pointers) {
  with_communicator(context, [&](ncclComm_t comm) {
    std::vector<std::unique_ptr<WindowMemory>> all;
    std::vector<const char*> theirs;
    for (int i = 0; i < 200; i++) {
      all.push_back(std::make_unique<WindowMemory>(comm, 4096));
      all.back()->data()[9] = static_cast<char>(i);
      void* pointer = nullptr;
      WEFT_OK(ncclGetPeerDevicePointer(all.back()->window(), 9, 1 - context.rank, &pointer));
      theirs.push_back(static_cast<const char*>(pointer));
    }
    barrier(comm);
    for (size_t i = 0; i < theirs.size(); i++) EXPECT_EQ(*theirs[i], static_cast<char>(i));
    barrier(comm);
  });
}

TEST(OneSided, PointersStayValidAsLongAsTheirWindow) { run_ranks_as_processes("many_pointers", 2); }

// Rank 1 has no descriptor left for a connection between hosts.
WEFT_SCENARIO(failing_registration) {
  with_communicator(context, [&](ncclComm_t comm) {
    void* memory = nullptr;
    WEFT_OK(ncclMemAlloc(&memory, 4096));
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    rlimit none = before;
    none.rlim_cur = 3;
    if (context.rank == 1) setrlimit(RLIMIT_NOFILE, &none);
    ncclWindow_t window = nullptr;
    const ncclResult_t result =
        ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_DEFAULT);
    setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_EQ(result, context.rank == 1 ? ncclSystemError : ncclRemoteError);
    const std::string text = ncclGetLastError(comm);
    EXPECT_NE(text.find(context.rank == 1 ? "open files" : "rank 1"), std::string::npos) << text;
    EXPECT_EQ(window, nullptr);
    WEFT_OK(ncclMemFree(memory));
    WindowMemory works(comm, 4096);
    barrier(comm);
  });
}

TEST(OneSided, ARegistrationThatFailsOnOneRankFailsOnAllAndCanBeRepeated) {
  ProcessOptions options;
  options.environment = separate_hosts;
  options.limit = std::chrono::seconds(30);  // less than WEFT_INIT_TIMEOUT
  run_ranks_as_processes("failing_registration", 3, options);
}

// Ranks may register different sizes. What counts is the target's.
TEST(OneSided, StaysInsideTheTargetsWindow) {
  run_ranks_as_threads(2, [](int rank, ncclComm_t comm) {
    WindowMemory mine(comm, rank == 0 ? 8192 : 4096);
    char data[16] = {};
    const auto put = [&](size_t offset) {
      return ncclPutSignal(data, sizeof data, ncclInt8, 1 - rank, mine.window(), offset, 0, 0, 0,
                           comm, nullptr);
    };
    void* theirs = nullptr;
    EXPECT_EQ(put(4090), rank == 0 ? ncclInvalidArgument : ncclSuccess);
    EXPECT_EQ(ncclGetPeerDevicePointer(mine.window(), 5000, 1 - rank, &theirs),
              rank == 0 ? ncclInvalidArgument : ncclSuccess);
    if (rank == 0) WEFT_OK(wait_for(comm, 1));
    barrier(comm);
  });
}

// Windows keep their handles while their communicator is suspended.
WEFT_SCENARIO(suspended_windows) {
  with_communicator(context, [&](ncclComm_t comm) {
    WindowMemory first(comm, 4096), second(comm, 1 << 20);
    const auto exchange = [&](const WindowMemory& to, char value) {
      const std::vector<char> from(to.size(), value);
      WEFT_OK(ncclPutSignal(from.data(), from.size(), ncclInt8, 1 - context.rank, to.window(), 0, 0,
                            0, 0, comm, nullptr));
      WEFT_OK(wait_for(comm, 1 - context.rank));
      EXPECT_EQ(to.data()[to.size() - 1], value);
      barrier(comm);
    };
    exchange(first, 1);
    WEFT_OK(ncclCommSuspend(comm, NCCL_SUSPEND_MEM));
    WEFT_OK(ncclCommResume(comm));
    exchange(second, 2);
    exchange(first, 3);
    WindowMemory third(comm, 4096);
    exchange(third, 4);
  });
}

TEST(OneSided, WindowsSurviveASuspension) {
  run_ranks_as_processes("suspended_windows", 2);
  ProcessOptions options;
  options.environment = separate_hosts;
  run_ranks_as_processes("suspended_windows", 2, options);
}

// Memory that other processes cannot map.
WEFT_SCENARIO(private_window) {
  with_communicator(context, [&](ncclComm_t comm) {
    std::vector<char> mine(4096);
    ncclWindow_t window = nullptr;
    WEFT_OK(ncclCommWindowRegister(comm, mine.data(), mine.size(), &window, NCCL_WIN_DEFAULT));
    char one = 1;
    EXPECT_EQ(ncclPutSignal(&one, 1, ncclInt8, 1 - context.rank, window, 0, 0, 0, 0, comm, nullptr),
              ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(comm)).find("ncclMemAlloc"), std::string::npos);
    WEFT_OK(ncclPutSignal(&one, 1, ncclInt8, context.rank, window, 9, 0, 0, 0, comm, nullptr));
    WEFT_OK(wait_for(comm, context.rank));
    EXPECT_EQ(mine[9], 1);
    barrier(comm);
    WEFT_OK(ncclCommWindowDeregister(comm, window));
  });
}

TEST(OneSided, PrivateMemoryIsRefused) { run_ranks_as_processes("private_window", 2); }

TEST(OneSided, ArgumentsAreChecked) {
  run_ranks_as_threads(2, [](int, ncclComm_t comm) {
    WindowMemory mine(comm, 4096);
    char data[16] = {};
    const auto put = [&](size_t count, int peer, size_t offset, int index, unsigned flags) {
      return ncclPutSignal(data, count, ncclInt8, peer, mine.window(), offset, index, 0, flags,
                           comm, nullptr);
    };
    EXPECT_EQ(put(16, 2, 0, 0, 0), ncclInvalidArgument);
    EXPECT_EQ(put(16, -1, 0, 0, 0), ncclInvalidArgument);
    EXPECT_EQ(put(16, 0, 4081, 0, 0), ncclInvalidArgument);
    EXPECT_EQ(put(16, 0, SIZE_MAX - 3, 0, 0), ncclInvalidArgument);
    EXPECT_EQ(put(16, 0, 0, 1, 0), ncclInvalidArgument);
    EXPECT_EQ(put(16, 0, 0, 0, 1), ncclInvalidArgument);
    EXPECT_EQ(ncclPutSignal(data, 1, ncclInt8, 0, nullptr, 0, 0, 0, 0, comm, nullptr),
              ncclInvalidArgument);
    EXPECT_EQ(ncclWaitSignal(0, nullptr, comm, nullptr), ncclInvalidArgument);
    ncclWaitSignalDesc_t none{0, 0, 0, 0};
    EXPECT_EQ(ncclWaitSignal(1, &none, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclSignal(0, 0, 1, 0, comm, nullptr), ncclInvalidArgument);
    barrier(comm);
  });
}

// A wait ends when the rank that should signal has gone.
TEST(OneSided, WaitsEndWhenThePeerLeaves) {
  CommSet set(2);
  auto text = std::make_shared<std::string>();
  PendingCall waiting([comm = set[0], text] {
    const ncclResult_t result = wait_for(comm, 1);
    *text = ncclGetLastError(comm);
    return result;
  });
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(100)), ncclNumResults);
  WEFT_OK(ncclCommDestroy(set.take(1)));
  EXPECT_EQ(waiting.wait_for(std::chrono::seconds(10)), ncclRemoteError);
  EXPECT_NE(text->find("waits for rank 1"), std::string::npos) << *text;
}

TEST(OneSided, WaitsEndWithAnAbort) {
  CommSet set(2);
  PendingCall waiting([comm = set[0]] { return wait_for(comm, 1); });
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(100)), ncclNumResults);
  WEFT_OK(ncclCommAbort(set.take(0)));
  EXPECT_NE(waiting.wait_for(std::chrono::seconds(10)), ncclSuccess);
}

TEST(OneSided, WaitsEndAtTheTimeout) {
  const ScopedEnvironment soon{{"WEFT_TIMEOUT", "0.3"}};
  CommSet set(2);
  EXPECT_EQ(wait_for(set[0], 1), ncclRemoteError);
  EXPECT_NE(std::string(ncclGetLastError(set[0])).find("WEFT_TIMEOUT"), std::string::npos)
      << ncclGetLastError(set[0]);
}

}  // namespace
}  // namespace weft::test
