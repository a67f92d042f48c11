// The suite as an MPI job. MPI_Bcast distributes the unique id. The brief core runs on the world
// and on the halves of a split.
#define OMPI_SKIP_MPICXX 1
#include <gtest/gtest.h>
#include <mpi.h>

#include "tests/support/conformance.h"
#include "tests/support/sampling.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

class MpiJob : public testing::Test {
 protected:
  void SetUp() override {
    ncclUniqueId id{};
    if (world_rank() == 0) {
      WEFT_OK(ncclGetUniqueId(&id));
    }
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    ASSERT_TRUE(
        succeeded(ncclCommInitRank(&comm_, world_size(), id, world_rank()), "ncclCommInitRank"));
  }
  void TearDown() override {
    if (comm_ != nullptr) {
      WEFT_OK(ncclCommDestroy(comm_));
    }
  }
  ncclComm_t comm_ = nullptr;
};

TEST_F(MpiJob, GivesTheReferenceResults) {
  run_cases(brief_cases(world_size()), world_rank(), world_size(), comm_, nullptr);
}

TEST_F(MpiJob, AgreesWithMpiItself) {
  constexpr int kCount = 10007;
  std::vector<double> in(kCount);
  std::vector<double> ours(kCount);
  std::vector<double> theirs(kCount);
  for (int i = 0; i < kCount; ++i) in[static_cast<size_t>(i)] = world_rank() * 1000 + i;
  WEFT_OK(ncclAllReduce(in.data(), ours.data(), kCount, ncclFloat64, ncclSum, comm_, nullptr));
  MPI_Allreduce(in.data(), theirs.data(), kCount, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  EXPECT_EQ(ours, theirs);
  const auto n = static_cast<size_t>(world_size());
  std::vector<double> ours_all(kCount * n);
  std::vector<double> theirs_all(kCount * n);
  WEFT_OK(ncclAllGather(in.data(), ours_all.data(), kCount, ncclFloat64, comm_, nullptr));
  MPI_Allgather(in.data(), kCount, MPI_DOUBLE, theirs_all.data(), kCount, MPI_DOUBLE,
                MPI_COMM_WORLD);
  EXPECT_EQ(ours_all, theirs_all);
  WEFT_OK(ncclAlltoAll(theirs_all.data(), ours_all.data(), kCount, ncclFloat64, comm_, nullptr));
  std::vector<double> exchanged(kCount * n);
  MPI_Alltoall(theirs_all.data(), kCount, MPI_DOUBLE, exchanged.data(), kCount, MPI_DOUBLE,
               MPI_COMM_WORLD);
  EXPECT_EQ(ours_all, exchanged);
}

TEST_F(MpiJob, SplitsIntoTwo) {
  ncclComm_t half = nullptr;
  WEFT_OK(ncclCommSplit(comm_, world_rank() % 2, -world_rank(), &half, nullptr));
  ASSERT_NE(half, nullptr);
  int rank = -1;
  int size = 0;
  WEFT_OK(ncclCommUserRank(half, &rank));
  WEFT_OK(ncclCommCount(half, &size));
  run_cases(brief_cases(size), rank, size, half, nullptr);
  WEFT_OK(ncclCommDestroy(half));
}

}  // namespace
}  // namespace weft::test

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  testing::InitGoogleTest(&argc, argv);
  int failed = RUN_ALL_TESTS();
  int any = 0;
  MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return any;
}
