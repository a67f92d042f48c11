// See process_rank.h.
#include "tests/gpu/support/process_rank.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/gpu/support/gpu.h"
#include "tests/support/case_list.h"
#include "tests/support/threads.h"

namespace weft::test {

ProcessRank::ProcessRank(const ProcessContext& context)
    : rank_(context.rank), nranks_(context.nranks), watchdog_(1, std::chrono::seconds(20)) {
  note("making the communicator of rank " + std::to_string(rank_));
  WEFT_CUDA(cudaSetDevice(0));
  WEFT_CUDA(cudaStreamCreateWithFlags(&own_, cudaStreamNonBlocking));
  stream_ = own_;
  if (!succeeded(ncclCommInitRank(&comm_, nranks_, context.ids.at(0), rank_), "ncclCommInitRank"))
    throw std::runtime_error("no communicator");
}

ProcessRank::~ProcessRank() {
  if (comm_ == nullptr) return;
  note("destroying the communicator of rank " + std::to_string(rank_));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ncclResult_t state = ncclSuccess;
  WEFT_OK(ncclCommGetAsyncError(comm_, &state));
  EXPECT_EQ(state, ncclSuccess) << ncclGetLastError(comm_);
  WEFT_OK(ncclCommDestroy(comm_));
  EXPECT_EQ(cudaStreamDestroy(own_), cudaSuccess);
}

void ProcessRank::run(const std::vector<Case>& cases, Arena& arena) {
  int failures = 0;
  for (const Case& c : cases) {
    note("rank " + std::to_string(rank_) + ": " + to_string(c, nranks_));
    arena.reset();
    const size_t offset = c.shifted ? type_of(c.type).bytes : 0;
    const std::string bad =
        run_device_case(c, rank_, nranks_, comm_, arena, stream_, {offset, offset});
    if (!bad.empty() && ++failures <= 3) ADD_FAILURE() << bad;
  }
  EXPECT_LE(failures, 3) << "failures in all";
}

void ProcessRank::meet(Arena& arena) {
  WEFT_OK(ncclAllReduce(arena.data(), arena.data(), 1, ncclInt8, ncclSum, comm_, stream_));
  WEFT_CUDA(cudaStreamSynchronize(stream_));
}

std::vector<Case> process_cases(int nranks, int samples, uint64_t seed) {
  std::vector<Case> cases = brief_cases(nranks);
  for (const Operation operation : all_operations()) {
    Case c;
    c.operation = operation;
    c.count = 400000;
    cases.push_back(c);
  }
  for (const Case& c : random_cases(nranks, samples, seed)) cases.push_back(c);
  return cases;
}

}  // namespace weft::test
