// Threads with a watchdog, and calls that may block.
#include "tests/support/threads.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <thread>

#include "tests/support/sampling.h"

namespace weft::test {

bool succeeded(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return true;
  std::fprintf(stderr, "%s: %s: %s\n", what, ncclGetErrorString(result), ncclGetLastError(nullptr));
  return false;
}

ncclUniqueId new_unique_id() {
  ncclUniqueId id{};
  if (ncclGetUniqueId(&id) != ncclSuccess) {
    throw std::runtime_error(std::string("ncclGetUniqueId: ") + ncclGetLastError(nullptr));
  }
  return id;
}

void run_threads(int n, const std::function<void(int)>& fn, std::chrono::milliseconds limit) {
  Watchdog watchdog(n, limit);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      watchdog.note(rank, "running");
      try {
        fn(rank);
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << rank << ": " << e.what();
      }
      watchdog.note(rank, "finished");
    });
  }
  for (std::thread& t : threads) t.join();
}

void run_ranks_as_threads(int n, const std::function<void(int, ncclComm_t)>& fn,
                          std::chrono::milliseconds limit) {
  const ncclUniqueId id = new_unique_id();
  run_threads(
      n,
      [&](int rank) {
        ncclComm_t comm = nullptr;
        if (!succeeded(ncclCommInitRank(&comm, n, id, rank), "ncclCommInitRank")) {
          throw std::runtime_error("ncclCommInitRank failed");
        }
        fn(rank, comm);
        WEFT_OK(ncclCommDestroy(comm));
      },
      limit);
}

CommSet::CommSet(int n) : comms_(static_cast<size_t>(n), nullptr) {
  // All ranks use GPU 0, if there is one.
  const std::vector<int> devices(static_cast<size_t>(n), 0);
  if (!succeeded(ncclCommInitAll(comms_.data(), n, devices.data()), "ncclCommInitAll")) {
    throw std::runtime_error("ncclCommInitAll failed");
  }
}

CommSet::~CommSet() {
  for (ncclComm_t comm : comms_) {
    if (comm != nullptr) ncclCommAbort(comm);
  }
}

ncclComm_t CommSet::take(int rank) {
  return std::exchange(comms_[static_cast<size_t>(rank)], nullptr);
}

PendingCall::PendingCall(std::function<ncclResult_t()> call)
    : promise_(std::make_shared<std::promise<ncclResult_t>>()), result_(promise_->get_future()) {
  // The thread is detached: a call that never returns must not keep the test from reporting it.
  std::thread([promise = promise_, call = std::move(call)] {
    promise->set_value(call());
  }).detach();
}

ncclResult_t PendingCall::wait_for(std::chrono::milliseconds limit) {
  if (result_.wait_for(patience(limit)) != std::future_status::ready) return ncclNumResults;
  return result_.get();
}

ncclResult_t settle(ncclComm_t comm, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + patience(limit);
  for (;;) {
    ncclResult_t state = ncclInternalError;
    if (const ncclResult_t r = ncclCommGetAsyncError(comm, &state); r != ncclSuccess) return r;
    if (state != ncclInProgress) return state;
    if (std::chrono::steady_clock::now() > deadline) return ncclNumResults;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace weft::test
