// Communicators on the GPU: split, shrunk, non-blocking, many at once.
#include <gtest/gtest.h>

#include "tests/comm/checks.h"
#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/team.h"

namespace weft::test {
namespace {

class GpuCommunicators : public GpuTest {};

// Runs the main operations at two sizes with a communicator other than the team's.
void run_on(const Rank& me, ncclComm_t comm) {
  for (const Operation operation : {Operation::kAllReduce, Operation::kAllGather,
                                    Operation::kReduceScatter, Operation::kSendRecv}) {
    for (const size_t count : {size_t{77}, size_t{60000}}) {
      me.arena->reset();
      expect_right(run_device_case(make_case(operation, count), rank_of(comm), size_of(comm), comm,
                                   *me.arena, me.stream()));
    }
  }
}

TEST_F(GpuCommunicators, MadeBySplitWorkSideBySide) {
  run_team(8, [](Rank& me) {
    ncclComm_t part = nullptr;
    WEFT_OK(ncclCommSplit(me.comm(), me.rank % 2, -me.rank, &part, nullptr));
    me.meet();
    EXPECT_EQ(size_of(part), 4);
    run_on(me, part);
    me.meet();
    run_on(me, me.comm());
    me.meet();
    WEFT_OK(ncclCommDestroy(part));
  });
}

TEST_F(GpuCommunicators, MadeByShrinkWork) {
  run_team(4, [](Rank& me) {
    ncclComm_t rest = nullptr;
    int excluded = 2;
    if (me.rank != 2) {
      WEFT_OK(ncclCommShrink(me.comm(), &excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT));
    }
    me.meet();
    if (me.rank != 2) {
      EXPECT_EQ(size_of(rest), 3);
      run_on(me, rest);
    }
    me.meet();
    if (me.rank != 2) {
      WEFT_OK(ncclCommDestroy(rest));
    }
    me.meet();
    run_on(me, me.comm());
  });
}

TEST_F(GpuCommunicators, WithoutBlockingWork) {
  const ncclUniqueId id = new_unique_id();
  Arena arenas[2] = {{size_t{16} << 20, Origin::kCudaMalloc},
                     {size_t{16} << 20, Origin::kCudaMalloc}};
  stream_number(0);
  run_threads(
      2,
      [&](int r) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        ncclComm_t comm = nullptr;
        const ncclResult_t made = ncclCommInitRankConfig(&comm, 2, id, r, &config);
        EXPECT_TRUE(made == ncclSuccess || made == ncclInProgress) << made;
        ASSERT_EQ(settle(comm), ncclSuccess) << ncclGetLastError(comm);
        const cudaStream_t stream = stream_number(static_cast<size_t>(r));
        for (const size_t count : {size_t{10}, size_t{200000}}) {
          DeviceCase run(make_case(Operation::kAllReduce, count), r, 2, comm, arenas[r], stream);
          const ncclResult_t launched = run.launch(stream);
          EXPECT_TRUE(launched == ncclSuccess || launched == ncclInProgress) << launched;
          ASSERT_EQ(settle(comm), ncclSuccess) << ncclGetLastError(comm);
          expect_right(run.check(stream));
        }
        const ncclResult_t finalized = ncclCommFinalize(comm);
        EXPECT_TRUE(finalized == ncclSuccess || finalized == ncclInProgress) << finalized;
        EXPECT_EQ(settle(comm), ncclSuccess);
        WEFT_OK(ncclCommDestroy(comm));
      },
      std::chrono::seconds(20));
}

TEST_F(GpuCommunicators, InNumbersWorkInTurn) {
  run_team(3,
           [](Rank& me) {
             for (const ncclComm_t comm : me.comms) run_on(me, comm);
             // Then all together in one group, on one stream.
             me.arena->reset();
             std::vector<std::unique_ptr<DeviceCase>> runs;
             for (const ncclComm_t comm : me.comms)
               runs.push_back(std::make_unique<DeviceCase>(make_case(Operation::kAllReduce, 5000),
                                                           me.rank, me.nranks, comm, *me.arena,
                                                           me.stream()));
             me.meet();
             WEFT_OK(ncclGroupStart());
             for (const auto& run : runs) WEFT_OK(run->launch(me.stream()));
             WEFT_OK(ncclGroupEnd());
             for (const auto& run : runs) expect_right(run->check(me.stream()));
           },
           {.comms = 10});
}

}  // namespace
}  // namespace weft::test
