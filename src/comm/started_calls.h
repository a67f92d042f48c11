// Host mode: calls that run on a thread of their own until somebody waits for them.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "src/base/fork.h"
#include "src/comm/call.h"
#include "src/comm/handle.h"

namespace weft {

// One thread makes it and waits for it. Meanwhile the communicator takes no other calls.
class StartedCalls {
 public:
  // Throws Error if the communicator takes no calls now.
  StartedCalls(ncclComm& comm, std::vector<Call> calls);
  ~StartedCalls();
  StartedCalls(const StartedCalls&) = delete;
  StartedCalls& operator=(const StartedCalls&) = delete;

  // Throws Error in a forked child, which has no such thread. The child must not destroy this.
  void check_process() const;
  // Returns when all calls are complete. Throws Error if one failed.
  void wait();

 private:
  void run(ncclComm& comm, const std::vector<Call>& calls) noexcept;

  const int generation_ = fork_generation();
  ncclResult_t code_ = ncclSuccess;
  std::string text_;
  std::thread thread_;
};

}  // namespace weft
