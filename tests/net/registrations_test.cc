// Between hosts, memory from ncclMemAlloc is sent as it lies by plugins that want it registered. It
// is registered once, and no longer than it exists.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "tests/support/processes.h"

namespace weft::test {
namespace {

constexpr size_t kInts = size_t{1} << 20, kBufferBytes = kInts * sizeof(int);

// Bytes that are registered with the plugin of the tests now.
size_t registered() {
  static const auto count = [] {
    void* plugin = dlopen(std::getenv("NCCL_NET_PLUGIN"), RTLD_NOW | RTLD_NOLOAD);
    return reinterpret_cast<size_t (*)()>(
        plugin == nullptr ? nullptr : dlsym(plugin, "weft_tiny_registered"));
  }();
  if (count != nullptr) return count();
  ADD_FAILURE() << "the plugin is not loaded";
  return 0;
}

// Two ranks exchange messages, and then sum what they have. Both halves of the memory are used.
void exchange(ncclComm_t comm, int* memory, int rank, int round, size_t ints = kInts) {
  int* in = memory + kInts;
  const auto value = [&](int of, size_t i) {
    return of * 1000 + round * 100 + static_cast<int>(i % 97);
  };
  for (size_t i = 0; i < ints; i++) memory[i] = value(rank, i);
  ncclGroupStart();
  EXPECT_EQ(ncclSend(memory, ints, ncclInt32, 1 - rank, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclRecv(in, ints, ncclInt32, 1 - rank, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  size_t wrong = 0;
  for (size_t i = 0; i < ints; i++) wrong += in[i] != value(1 - rank, i) ? 1 : 0;
  EXPECT_EQ(ncclAllReduce(memory, memory, ints, ncclInt32, ncclSum, comm, nullptr), ncclSuccess);
  for (size_t i = 0; i < ints; i++) wrong += memory[i] != value(0, i) + value(1, i) ? 1 : 0;
  EXPECT_EQ(wrong, 0u) << "round " << round;
}

WEFT_SCENARIO(memory_that_is_sent_as_it_lies) {
  with_communicator(context, [&](ncclComm_t comm) {
    const size_t rings = registered();
    std::vector<int> plain(2 * kInts);
    exchange(comm, plain.data(), context.rank, 0);
    EXPECT_EQ(registered(), rings) << "nothing tells when this memory is freed";
    for (int round = 1; round <= 3; round++) {  // often at the same address
      void* memory = nullptr;
      ASSERT_EQ(ncclMemAlloc(&memory, 2 * kBufferBytes), ncclSuccess);
      for (int again = 0; again < 3; again++)
        exchange(comm, static_cast<int*>(memory), context.rank, round + again);
      if (context.argument == "takes") {
        EXPECT_GE(registered(), rings + 2 * kBufferBytes);
      } else {
        EXPECT_LT(registered(), rings + 2 * kBufferBytes);
      }
      const size_t before = registered();
      exchange(comm, static_cast<int*>(memory), context.rank, round);
      EXPECT_EQ(registered(), before) << "registered again";
      ASSERT_EQ(ncclMemFree(memory), ncclSuccess);
      if (context.argument == "takes") {
        EXPECT_EQ(registered(), rings) << "still registered";
      }
    }
  });
}

// The plugin would send the pages of freed memory while any connection has them registered: here
// also that of a second communicator, which does nothing between the free and the next use.
WEFT_SCENARIO(memory_at_the_address_of_freed_memory) {
  with_communicator(context, [&](ncclComm_t first) {
    ncclComm_t second = nullptr;
    ASSERT_EQ(ncclCommSplit(first, 0, context.rank, &second, nullptr), ncclSuccess);
    constexpr int kRounds = 100;
    constexpr size_t kFew = size_t{1} << 16;
    const void* last = nullptr;
    int at_same_address = 0;
    for (int round = 0; round < kRounds; round++) {
      void* memory = nullptr;
      ASSERT_EQ(ncclMemAlloc(&memory, (kInts + kFew) * sizeof(int)), ncclSuccess);
      at_same_address += memory == last ? 1 : 0;
      for (ncclComm_t comm : {first, second})
        exchange(comm, static_cast<int*>(memory), context.rank, round, kFew);
      last = memory;
      ASSERT_EQ(ncclMemFree(memory), ncclSuccess);
    }
    EXPECT_GT(at_same_address, 0) << "this tested nothing";
    EXPECT_EQ(ncclCommDestroy(second), ncclSuccess);
  });
}

// The connection to rank 1 has failed, and the communicator lives on.
WEFT_SCENARIO(memory_that_outlives_a_peer) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, context.nranks, context.ids.at(0), context.rank), ncclSuccess);
  const size_t rings = registered();
  void* memory = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 2 * kBufferBytes), ncclSuccess);
  exchange(comm, static_cast<int*>(memory), context.rank, 0);
  EXPECT_GE(registered(), rings + 2 * kBufferBytes);
  if (context.rank == 1) std::_Exit(0);
  EXPECT_NE(ncclAllReduce(memory, memory, kInts, ncclInt32, ncclSum, comm, nullptr), ncclSuccess);
  ASSERT_EQ(ncclMemFree(memory), ncclSuccess);
  EXPECT_LE(registered(), rings) << "still registered";  // the rings of rank 1 may be gone
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

void play(const std::string& scenario, const std::string& argument = "",
          const std::string& limit = "") {
  ProcessOptions options;
  options.limit = std::chrono::seconds(60);
  options.argument = argument;
  options.environment = [&](int rank) {
    auto all = separate_hosts(rank);
    all["NCCL_NET_PLUGIN"] = WEFT_TEST_PLUGINS "/libnccl-net-tiny8.so";
    all["NCCL_NET"] = "tiny8";
    all["WEFT_TEST_TINY_LIMIT"] = limit;
    return all;
  };
  run_ranks_as_processes(scenario, 2, options);
}

TEST(NetworkRegistrations, LastAsLongAsTheMemory) {
  play("memory_that_is_sent_as_it_lies", "takes");
}
TEST(NetworkRegistrations, ThatAreRefusedAreReplacedByCopies) {
  play("memory_that_is_sent_as_it_lies", "refuses", "6");
}
TEST(NetworkRegistrations, EndWithTheMemoryAlsoIfTheConnectionFailed) {
  play("memory_that_outlives_a_peer");
}
TEST(NetworkRegistrations, EndBeforeOtherMemoryHasTheAddress) {
  play("memory_at_the_address_of_freed_memory");
}

}  // namespace
}  // namespace weft::test
