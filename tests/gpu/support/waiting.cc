// See waiting.h.
#include "tests/gpu/support/waiting.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/team.h"

namespace weft::test {

ncclResult_t async_error_within(ncclComm_t comm, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    ncclResult_t state = ncclSuccess;
    if (const ncclResult_t r = ncclCommGetAsyncError(comm, &state); r != ncclSuccess) return r;
    if (state != ncclSuccess && state != ncclInProgress) return state;
    if (std::chrono::steady_clock::now() > deadline) return ncclSuccess;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void expect_abort_succeeds(ncclComm_t comm) {
  PendingCall abort([comm] { return ncclCommAbort(comm); });
  EXPECT_EQ(abort.wait_for(std::chrono::seconds(5)), ncclSuccess) << "(8: still blocked)";
}

void expect_usable(cudaStream_t stream, char* memory) {
  ASSERT_EQ(finish_within(stream, std::chrono::seconds(5)), "");
  std::vector<char> host(1000, 0);
  WEFT_CUDA(cudaMemsetAsync(memory, 7, host.size(), stream));
  WEFT_CUDA(cudaMemcpyAsync(host.data(), memory, host.size(), cudaMemcpyDeviceToHost, stream));
  WEFT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(host, std::vector<char>(host.size(), 7));
}

void expect_new_communicators_work() {
  run_team(2, [](Rank& me) {
    for (const Operation operation : all_operations())
      for (const size_t count : {size_t{100}, size_t{100000}}) me.run(make_case(operation, count));
  });
}

}  // namespace weft::test
