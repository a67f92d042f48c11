// Memory: ncclMemAlloc, ncclCommRegister, ncclCommWindowRegister.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/comm/checks.h"
#include "tests/support/environment.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

TEST(MemAlloc, GivesWritableMemoryAlignedForWindows) {
  for (size_t size : {size_t{1}, size_t{4096}, size_t{1000003}, size_t{64} << 20}) {
    void* memory = nullptr;
    WEFT_OK(ncclMemAlloc(&memory, size));
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % NCCL_WIN_REQUIRED_ALIGNMENT, 0u);
    std::memset(memory, 7, size);
    WEFT_OK(ncclMemFree(memory));
  }
}

TEST(MemAlloc, CanBeRepeatedWithoutEnd) {
  for (int i = 0; i < 2000; ++i) {
    void* memory = nullptr;
    ASSERT_EQ(ncclMemAlloc(&memory, size_t{1} << 20), ncclSuccess) << "round " << i;
    static_cast<char*>(memory)[0] = 1;
    ASSERT_EQ(ncclMemFree(memory), ncclSuccess);
  }
}

TEST(MemFree, OfNullIsNothing) { WEFT_OK(ncclMemFree(nullptr)); }

// Peers may have mapped the memory. After it is freed and replaced they must see the new memory.
TEST(MemAlloc, BuffersCanBeFreedAndReplacedBetweenCalls) {
  run_ranks_as_threads(3, [](int rank, ncclComm_t comm) {
    for (int round = 0; round < 20; ++round) {
      const size_t count = 30000 + static_cast<size_t>(round) * 1000;
      void* memory = nullptr;
      WEFT_OK(ncclMemAlloc(&memory, count * sizeof(int)));
      int* data = static_cast<int*>(memory);
      for (size_t i = 0; i < count; ++i) data[i] = rank + round + static_cast<int>(i);
      WEFT_OK(ncclAllReduce(data, data, count, ncclInt32, ncclSum, comm, nullptr));
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], 3 * (round + static_cast<int>(i)) + 3);
      WEFT_OK(ncclMemFree(memory));
    }
  });
}

TEST(Register, TakesAnyBufferAndGivesItBack) {
  run_ranks_as_threads(2, [](int, ncclComm_t comm) {
    std::vector<float> ours(5000, 1.0f);
    void* memory = nullptr;
    WEFT_OK(ncclMemAlloc(&memory, 20000));
    void* first = nullptr;
    void* second = nullptr;
    WEFT_OK(ncclCommRegister(comm, ours.data(), ours.size() * sizeof(float), &first));
    WEFT_OK(ncclCommRegister(comm, memory, 20000, &second));
    EXPECT_NE(first, nullptr);
    EXPECT_NE(second, nullptr);
    WEFT_OK(ncclAllReduce(ours.data(), memory, ours.size(), ncclFloat32, ncclSum, comm, nullptr));
    EXPECT_EQ(static_cast<float*>(memory)[4999], 2.0f);
    WEFT_OK(ncclCommDeregister(comm, first));
    WEFT_OK(ncclCommDeregister(comm, second));
    WEFT_OK(ncclMemFree(memory));
  });
}

TEST(Window, RegistersMemAllocMemoryForCollectives) {
  run_ranks_as_threads(4, [](int rank, ncclComm_t comm) {
    constexpr size_t kBytes = 1 << 20;
    void* memory = nullptr;
    WEFT_OK(ncclMemAlloc(&memory, kBytes));
    ncclWindow_t window = nullptr;
    WEFT_OK(ncclCommWindowRegister(comm, memory, kBytes, &window, NCCL_WIN_COLL_SYMMETRIC));
    int* data = static_cast<int*>(memory);
    const size_t count = kBytes / sizeof(int);
    for (size_t i = 0; i < count; ++i) data[i] = rank;
    WEFT_OK(ncclAllReduce(data, data, count, ncclInt32, ncclSum, comm, nullptr));
    EXPECT_EQ(data[0], 6);
    EXPECT_EQ(data[count - 1], 6);
    if (window != nullptr) {  // null means not supported: use the buffer as it is
      WEFT_OK(ncclCommWindowDeregister(comm, window));
    }
    WEFT_OK(ncclMemFree(memory));
  });
}

TEST(Window, IsNoneWhereTheUserTurnedThemOff) {
  const ScopedEnvironment off{{"NCCL_WIN_ENABLE", "0"}, {"NCCL_LOCAL_REGISTER", "0"}};
  CommSet set(1);
  void* memory = nullptr;
  WEFT_OK(ncclMemAlloc(&memory, 4096));
  ncclWindow_t window = reinterpret_cast<ncclWindow_t>(memory);
  WEFT_OK(ncclCommWindowRegister(set[0], memory, 4096, &window, NCCL_WIN_DEFAULT));
  EXPECT_EQ(window, nullptr);
  WEFT_OK(ncclCommWindowDeregister(set[0], window));
  void* handle = nullptr;  // a registration that did nothing can still be given back
  WEFT_OK(ncclCommRegister(set[0], memory, 4096, &handle));
  EXPECT_NE(handle, nullptr);
  WEFT_OK(ncclCommDeregister(set[0], handle));
  WEFT_OK(ncclMemFree(memory));
}

TEST(Window, CanBeRegisteredForAllRanksByOneThread) {
  CommSet set(2);
  void* memory[2] = {};
  ncclWindow_t windows[2] = {};
  for (void*& m : memory) WEFT_OK(ncclMemAlloc(&m, 8192));
  WEFT_OK(ncclGroupStart());
  for (int r = 0; r < 2; ++r) {
    WEFT_OK(ncclCommWindowRegister(set[r], memory[r], 8192, &windows[r],
                                   NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING));
  }
  WEFT_OK(ncclGroupEnd());
  for (int r = 0; r < 2; ++r) {
    if (windows[r] != nullptr) {
      WEFT_OK(ncclCommWindowDeregister(set[r], windows[r]));
    }
    WEFT_OK(ncclMemFree(memory[r]));
  }
}

}  // namespace
}  // namespace weft::test
