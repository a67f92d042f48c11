// What ncclCommGetAsyncError says about the background work of a communicator.
#pragma once

#include <mutex>

#include "include/nccl.h"

namespace weft {

// Several calls may be under way. The first failure among calls that overlap counts. Thread-safe.
class Progress {
 public:
  void begin() {
    std::lock_guard lock(mutex_);
    if (running_++ == 0) result_ = ncclSuccess;
  }
  void end(ncclResult_t result) {
    std::lock_guard lock(mutex_);
    running_--;
    if (result_ == ncclSuccess) result_ = result;
  }
  // The communicator has failed, whether something is under way or not.
  void fail(ncclResult_t result) {
    std::lock_guard lock(mutex_);
    result_ = result;
  }
  ncclResult_t get() const {
    std::lock_guard lock(mutex_);
    return running_ > 0 ? ncclInProgress : result_;
  }

 private:
  mutable std::mutex mutex_;
  int running_ = 0;
  ncclResult_t result_ = ncclSuccess;
};

}  // namespace weft
