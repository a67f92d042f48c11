// Kernels that communicate by themselves (LSA), built with the toolkit's own headers of NCCL 2.28.9
// and with ours, and windows.
#include <gtest/gtest.h>

#include <vector>

#include "tests/gpu/support/device_api_kernels.h"
#include "tests/gpu/support/gpu_processes.h"
#include "tests/gpu/support/process_rank.h"
#include "tests/gpu/support/team.h"
#include "tests/gpu/support/window_memory.h"
#include "tests/support/one_sided.h"
#include "tests/support/threads.h"

extern "C" {
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void** outPtr);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int rank, void** outPtr);
}

namespace weft::test {
namespace {

constexpr int kBlocks = 8;

// A rank's view, as a thread or as a process.
struct DeviceMember {
  int rank, nranks;
  ncclComm_t comm;
  cudaStream_t stream;
  const DeviceApi& api = toolkit_device_api;
};

float sum_of(int nranks, size_t i) {
  return static_cast<float>(nranks * (nranks - 1) / 2 + nranks * static_cast<int>(i % 100));
}

void wait(cudaStream_t stream) {
  const std::string late = finish_within(stream, std::chrono::seconds(10));
  if (!late.empty()) throw std::runtime_error(late);
}

// Kernels reduce, many times and at several sizes.
void reduce_in_kernels(const DeviceMember& me) {
  constexpr size_t kMost = 1 << 20;
  WindowMemory send(me.comm, kMost * sizeof(float), me.stream),
      receive(me.comm, kMost * sizeof(float), me.stream);
  DeviceApi::Communicator comm;
  ASSERT_EQ(me.api.create(me.comm, kBlocks, 0, 0, comm), 0) << ncclGetLastError(nullptr);
  std::vector<float> mine(kMost), got(kMost);
  for (size_t i = 0; i < kMost; i++)
    mine[i] = static_cast<float>(me.rank + static_cast<int>(i % 100));
  send.write(mine.data(), kMost * sizeof(float));
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{300001}, kMost}) {
    for (int round = 0; round < 5; round++)
      me.api.all_reduce(comm, send.window(), receive.window(), count, kBlocks, me.stream);
    wait(me.stream);
    receive.read(got.data(), count * sizeof(float));
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) wrong += got[i] != sum_of(me.nranks, i) ? 1 : 0;
    EXPECT_EQ(wrong, 0u) << count << " floats";
  }
  EXPECT_EQ(me.api.destroy(me.comm, comm), 0);
}

void exchange_in_kernels(const DeviceMember& me) {
  DeviceApi::Communicator comm;
  ASSERT_EQ(me.api.create(me.comm, 1, 1, me.nranks, comm), 0) << ncclGetLastError(nullptr);
  WindowMemory count(me.comm, 4096, me.stream);
  for (int round = 0; round < 3; round++)
    me.api.exchange(comm, 50, static_cast<unsigned*>(count.data()), me.stream);
  wait(me.stream);
  unsigned wrong = 1;
  count.read(&wrong, sizeof wrong);
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(me.api.destroy(me.comm, comm), 0);
}

// What kernels find is what the host finds. Many windows fill several tables.
void find_in_kernels(const DeviceMember& me) {
  std::vector<std::unique_ptr<WindowMemory>> all;
  for (int i = 0; i < 40; i++)
    all.push_back(std::make_unique<WindowMemory>(me.comm, 8192, me.stream));
  DeviceApi::Communicator comm;
  ASSERT_EQ(me.api.create(me.comm, 1, 0, 0, comm), 0) << ncclGetLastError(nullptr);
  const int next = (me.rank + 1) % me.nranks;
  WindowMemory place(me.comm, 4096, me.stream);
  for (const size_t i : {size_t{0}, size_t{31}, size_t{32}, size_t{39}}) {
    me.api.find(comm, static_cast<char*>(all[i]->data()) + 100, all[i]->window(), next,
                static_cast<DeviceApi::Found*>(place.data()), me.stream);
    wait(me.stream);
    DeviceApi::Found found{};
    place.read(&found, sizeof found);
    EXPECT_EQ(found.window, static_cast<void*>(all[i]->window()));
    void *local = nullptr, *peer = nullptr;
    WEFT_OK(ncclGetLsaDevicePointer(all[i]->window(), 0, me.rank, &local));
    WEFT_OK(ncclGetPeerDevicePointer(all[i]->window(), 0, next, &peer));
    EXPECT_EQ(found.local, local);
    EXPECT_EQ(found.peer, peer);
    EXPECT_NE(peer, nullptr);
  }
  EXPECT_EQ(me.api.destroy(me.comm, comm), 0);
}

void meet(const DeviceMember& me, WindowMemory& memory) {
  WEFT_OK(ncclAllReduce(memory.data(), memory.data(), 1, ncclInt8, ncclMax, me.comm, me.stream));
  wait(me.stream);
}

// Copies through the pointers of the host.
void copy_from_peers(const DeviceMember& me) {
  WindowMemory mine(me.comm, 1 << 20, me.stream), word(me.comm, 4096, me.stream);
  const int value = 100 + me.rank;
  for (const size_t at : {size_t{0}, size_t{(1 << 20) - 4}}) mine.write(&value, 4, at);
  meet(me, word);
  for (int peer = 0; peer < me.nranks; peer++)
    for (const size_t at : {size_t{0}, size_t{(1 << 20) - 4}}) {
      void* theirs = nullptr;
      WEFT_OK(ncclGetPeerDevicePointer(mine.window(), at, peer, &theirs));
      int got = 0;
      download(&got, theirs, 4, me.stream);
      EXPECT_EQ(got, 100 + peer);
    }
  void* user = nullptr;
  WEFT_OK(ncclWinGetUserPtr(me.comm, mine.window(), &user));
  EXPECT_EQ(user, mine.data());
  meet(me, word);
}

// A window in the middle of an allocation, and windows of cudaMalloc, which kernels cannot reach.
void odd_windows(const DeviceMember& me) {
  WindowMemory whole(me.comm, 8 << 20, me.stream);
  ncclWindow_t part = nullptr;
  char* inside = static_cast<char*>(whole.data()) + (2 << 20) + 4096;
  WEFT_OK(ncclCommWindowRegister(me.comm, inside, 4096, &part, NCCL_WIN_COLL_SYMMETRIC));
  const int value = 7 + me.rank, next = (me.rank + 1) % me.nranks;
  upload(inside, &value, 4, me.stream);
  meet(me, whole);
  void* theirs = nullptr;
  WEFT_OK(ncclGetPeerDevicePointer(part, 0, next, &theirs));
  int got = 0;
  download(&got, theirs, 4, me.stream);
  EXPECT_EQ(got, 7 + next);
  meet(me, whole);
  WEFT_OK(ncclCommWindowDeregister(me.comm, part));
  void* plain = nullptr;
  WEFT_CUDA(cudaMalloc(&plain, 1 << 20));
  WEFT_OK(ncclCommWindowRegister(me.comm, plain, 1 << 20, &part, NCCL_WIN_COLL_SYMMETRIC));
  EXPECT_EQ(ncclGetLsaDevicePointer(part, 0, me.rank, &theirs), ncclInvalidUsage);
  WEFT_OK(ncclCommWindowDeregister(me.comm, part));
  meet(me, whole);
  WEFT_CUDA(cudaFree(plain));
}

WEFT_SCENARIO(device_api) {
  ProcessRank process(context);
  toolkit_device_api.load();
  our_device_api.load();
  const DeviceMember me{process.rank(), process.nranks(), process.comm(), process.stream(),
                        context.argument == "ours" ? our_device_api : toolkit_device_api};
  process.note("pointers");
  copy_from_peers(me);
  odd_windows(me);
  process.note("all_reduce in kernels");
  reduce_in_kernels(me);
  process.note("exchange in kernels");
  if (me.api.exchange != nullptr) exchange_in_kernels(me);
  process.note("search in kernels");
  find_in_kernels(me);
}

class DeviceApiProcesses : public GpuProcesses {};

TEST_F(DeviceApiProcesses, WorksBetweenTwo) { play("device_api", 2); }
TEST_F(DeviceApiProcesses, WorksBetweenFour) { play("device_api", 4); }
TEST_F(DeviceApiProcesses, WorksBetweenEight) { play("device_api", 8); }
TEST_F(DeviceApiProcesses, WorksWithOurHeaders) {
  for (const int n : {2, 5}) play("device_api", n, "ours");
}

// Kernels of threads may wait for each other, so what could block comes before.
class DeviceApiThreads : public GpuTest {};

TEST_F(DeviceApiThreads, ReduceInKernels) {
  toolkit_device_api.load();
  our_device_api.load();
  run_team(4, [](Rank& me) { reduce_in_kernels({me.rank, me.nranks, me.comm(), me.stream()}); });
}
TEST_F(DeviceApiThreads, ReachEachOthersWindows) {
  run_team(3, [](Rank& me) { copy_from_peers({me.rank, me.nranks, me.comm(), me.stream()}); });
}

// Two hosts of two ranks: kernels reach the ranks of their own host.
WEFT_SCENARIO(device_api_of_hosts) {
  ProcessRank me(context);
  toolkit_device_api.load();
  our_device_api.load();
  WindowMemory mine(me.comm(), 8192, me.stream());
  void* theirs = nullptr;
  const int same_host = me.rank() ^ 1, other_host = me.rank() ^ 2;
  WEFT_OK(ncclGetPeerDevicePointer(mine.window(), 0, same_host, &theirs));
  EXPECT_NE(theirs, nullptr);
  WEFT_OK(ncclGetPeerDevicePointer(mine.window(), 0, other_host, &theirs));
  EXPECT_EQ(theirs, nullptr);
  reduce_in_kernels({me.rank() % 2, 2, me.comm(), me.stream()});
}

TEST_F(DeviceApiProcesses, ReachesTheRanksOfAHost) {
  ProcessOptions options;
  options.limit = std::chrono::seconds(40);
  options.environment = [](int rank) { return separate_hosts(rank / 2); };
  run_ranks_as_processes("device_api_of_hosts", 4, options);
}

}  // namespace
}  // namespace weft::test
