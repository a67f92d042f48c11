// Ranks as threads of this process.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "nccl.h"
#include "tests/support/watchdog.h"

namespace weft::test {

// Asserts success and shows the library's own text otherwise.
#define WEFT_OK(call) EXPECT_TRUE(::weft::test::succeeded((call), #call))
bool succeeded(ncclResult_t result, const char* what);

ncclUniqueId new_unique_id();

// Runs fn(rank) in `n` threads and waits for all. Exceptions become test failures. A hang ends the
// program with a list of the ranks still running.
void run_threads(int n, const std::function<void(int rank)>& fn,
                 std::chrono::milliseconds limit = std::chrono::seconds(60));

// The same with one communicator of n ranks. ncclCommInitRank makes it; it is destroyed afterwards.
void run_ranks_as_threads(int n, const std::function<void(int rank, ncclComm_t comm)>& fn,
                          std::chrono::milliseconds limit = std::chrono::seconds(60));

// The communicators of n ranks, driven from the calling thread (ncclCommInitAll). The destructor
// aborts every communicator that take() or destroy() has not removed.
class CommSet {
 public:
  explicit CommSet(int n);
  ~CommSet();
  CommSet(const CommSet&) = delete;
  CommSet& operator=(const CommSet&) = delete;
  ncclComm_t operator[](int rank) const { return comms_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(comms_.size()); }
  // The caller owns this communicator from now on.
  ncclComm_t take(int rank);

 private:
  std::vector<ncclComm_t> comms_;
};

// A call that may block, in its own thread. Gives its result within `limit`, or ncclNumResults if
// the call is still blocked.
class PendingCall {
 public:
  explicit PendingCall(std::function<ncclResult_t()> call);
  ncclResult_t wait_for(std::chrono::milliseconds limit);

 private:
  std::shared_ptr<std::promise<ncclResult_t>> promise_;
  std::shared_future<ncclResult_t> result_;
};

// Waits until a non-blocking communicator's state is no longer ncclInProgress. Returns
// ncclNumResults after `limit`.
ncclResult_t settle(ncclComm_t comm, std::chrono::milliseconds limit = std::chrono::seconds(20));

}  // namespace weft::test
