// Processes that share memory from cuMemCreate, and processes whose data the copy engines move.
#include <gtest/gtest.h>

#include "tests/gpu/support/gpu_processes.h"
#include "tests/gpu/support/own_log.h"
#include "tests/gpu/support/process_rank.h"
#include "tests/support/patterns.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

// Memory from cuMemCreate, in several pieces.
WEFT_SCENARIO(virtual_memory_registered) {
  ProcessRank me(context);
  {
    Arena arena(size_t{64} << 20, Origin::kVirtual);
    void* registration = nullptr;
    WEFT_OK(ncclCommRegister(me.comm(), arena.data(), arena.size(), &registration));
    me.run({plain(Operation::kAllReduce, 500000), plain(Operation::kAllGather, 300000),
            plain(Operation::kSendRecv, 500000)},
           arena);
    me.meet(arena);
    WEFT_OK(ncclCommDeregister(me.comm(), registration));
    me.run({plain(Operation::kAllReduce, 500000)}, arena);
    me.meet(arena);
  }
  const std::string zero_copy = own_log();
  EXPECT_TRUE(says(zero_copy, "that rank [0-9]+ shares are used where they are")) << zero_copy;
}
WEFT_SCENARIO(virtual_memory_private) {
  ProcessRank me(context);
  Arena arena(size_t{64} << 20, Origin::kVirtualPrivate);
  void* registration = nullptr;
  WEFT_OK(ncclCommRegister(me.comm(), arena.data(), arena.size(), &registration));
  me.run({plain(Operation::kAllReduce, 500000), plain(Operation::kSendRecv, 500000)}, arena);
  me.meet(arena);
  WEFT_OK(ncclCommDeregister(me.comm(), registration));
  const std::string log = own_log();
  EXPECT_TRUE(says(log, "stays private")) << log;
}

class VirtualMemoryOf : public GpuProcesses {
 protected:
  static Environment logged() {
    return {{"NCCL_DEBUG", "INFO"},
            {"NCCL_DEBUG_SUBSYS", "REG"},
            {"NCCL_DEBUG_FILE", testing::TempDir() + "weft-registrations.%p"}};
  }
};

TEST_F(VirtualMemoryOf, RegisteredBuffersIsUsedWhereItIs) {
  play("virtual_memory_registered", 2, "", logged());
}
TEST_F(VirtualMemoryOf, BuffersWithoutHandlesStaysPrivate) {
  play("virtual_memory_private", 2, "", logged());
}

// The copy engines move data between processes.
class CopyProcesses : public GpuProcesses {
 protected:
  static void play_copies(const char* scenario, int n, const std::string& argument = "",
                          Environment environment = {}) {
    environment["WEFT_COPY_ENGINES"] = "1";
    play(scenario, n, argument, environment);
  }
};

TEST_F(CopyProcesses, GiveRightResults) {
  for (const int n : {2, 3}) play_copies("device_conformance", n, "cudaMalloc");
}
TEST_F(CopyProcesses, GiveRightResultsWithRegisteredMemory) {
  play_copies("device_conformance", 4, "mixed");
}
TEST_F(CopyProcesses, GiveRightResultsWithASmallStage) {
  play_copies("device_conformance", 3, "cudaMalloc", {{"WEFT_SCRATCH_BYTES", "1M"}});
}
TEST_F(CopyProcesses, GiveRightResultsWithOneHardwareQueue) {
  play_copies("device_conformance", 2, "cudaMalloc",
              {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}, {"CUDA_DEVICE_MAX_COPY_CONNECTIONS", "1"}});
}
TEST_F(CopyProcesses, ReplayGraphs) { play_copies("graphs_between_processes", 3, "cudaMalloc"); }
TEST_F(CopyProcesses, MayUseDefaultStreams) { play_copies("default_streams", 2); }
TEST_F(CopyProcesses, OfTwoThreadsEachGiveRightResults) { play_copies("two_ranks_each", 2); }

}  // namespace
}  // namespace weft::test
