// Between hosts, memory from ncclMemAlloc is sent as it lies by plugins that want it registered. It
// is registered once, and no longer than it exists.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

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

bool falls_to(size_t bytes) {
  for (int tries = 0; tries < 1000 && registered() != bytes; tries++)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return registered() == bytes;
}

// Two ranks exchange messages, and then sum what they have. Both halves of the memory are used.
void exchange(ncclComm_t comm, int* memory, int rank, int round) {
  int* in = memory + kInts;
  const auto value = [&](int of, size_t i) {
    return of * 1000 + round * 100 + static_cast<int>(i % 97);
  };
  for (size_t i = 0; i < kInts; i++) memory[i] = value(rank, i);
  ncclGroupStart();
  EXPECT_EQ(ncclSend(memory, kInts, ncclInt32, 1 - rank, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclRecv(in, kInts, ncclInt32, 1 - rank, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  size_t wrong = 0;
  for (size_t i = 0; i < kInts; i++) wrong += in[i] != value(1 - rank, i) ? 1 : 0;
  EXPECT_EQ(ncclAllReduce(memory, memory, kInts, ncclInt32, ncclSum, comm, nullptr), ncclSuccess);
  for (size_t i = 0; i < kInts; i++) wrong += memory[i] != value(0, i) + value(1, i) ? 1 : 0;
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
        EXPECT_TRUE(falls_to(rings)) << "still registered: " << registered() - rings;
      }
    }
  });
}

void play(const std::string& argument, const std::string& limit) {
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
  run_ranks_as_processes("memory_that_is_sent_as_it_lies", 2, options);
}

TEST(NetworkRegistrations, LastAsLongAsTheMemory) { play("takes", ""); }
TEST(NetworkRegistrations, ThatAreRefusedAreReplacedByCopies) { play("refuses", "6"); }

}  // namespace
}  // namespace weft::test
