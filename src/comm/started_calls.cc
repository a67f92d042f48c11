// See started_calls.h.
#include "src/comm/started_calls.h"

#include "src/base/error.h"
#include "src/comm/group.h"

namespace weft {

StartedCalls::StartedCalls(ncclComm& comm, std::vector<Call> calls) {
  Use use(comm);  // until the calls are done
  if (use->on_gpu())
    fail(ncclInvalidUsage, "weftStart is for host mode; on GPUs a stream runs the parts");
  if (in_group()) fail(ncclInvalidUsage, "weftStart inside a group");
  if (comm.progress.get() == ncclInProgress)
    fail(ncclInvalidUsage, "another call of this communicator is in progress");
  if (comm.started.exchange(true))
    fail(ncclInvalidUsage, "another call of this communicator was started: weftWait comes first");
  try {
    thread_ = std::thread([this, &comm, own = std::move(use), list = std::move(calls)] {
      run(comm, list);
      comm.started.store(false, std::memory_order_release);
    });
  } catch (const std::system_error& error) {
    comm.started = false;
    fail(ncclSystemError, "no thread for a started call: {}", error.what());
  }
}

StartedCalls::~StartedCalls() {
  if (thread_.joinable()) thread_.join();
}

void StartedCalls::run(ncclComm& comm, const std::vector<Call>& calls) noexcept {
  try {
    run_accepted(comm, calls);
  } catch (const Error& error) {
    code_ = error.code();
    text_ = error.what();
  } catch (const std::exception& error) {
    code_ = ncclInternalError;
    text_ = error.what();
  }
}

void StartedCalls::check_process() const {
  if (generation_ != fork_generation())
    fail(ncclInvalidUsage, "the call was started by the process that forked this one");
}

void StartedCalls::wait() {
  thread_.join();
  if (code_ != ncclSuccess) throw Error(code_, text_);
}

}  // namespace weft
