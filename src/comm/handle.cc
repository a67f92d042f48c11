// See handle.h.
#include "src/comm/handle.h"

#include <deque>

#include "src/base/error.h"
#include "src/base/log.h"

namespace weft {

namespace {

struct Handles {
  std::mutex mutex;
  std::deque<ncclComm> all;
};

Handles& handles() {
  static Handles& handles = *std::make_unique<Handles>().release();
  return handles;
}

}  // namespace

namespace {

void check_process(const ncclComm& comm) {
  if (comm.generation != known_fork_generation())
    fail(ncclInvalidUsage,
         "comm belongs to the process that forked this one: a child makes its own communicators");
}

}  // namespace

ncclComm* new_handle(int rank, int nranks, const CommConfig& config) {
  std::lock_guard lock(handles().mutex);
  ncclComm& comm = handles().all.emplace_back();
  comm.rank = rank;
  comm.nranks = nranks;
  comm.config = config;
  comm.tag = static_cast<uint32_t>(handles().all.size());
  return &comm;
}

void for_each_handle(const std::function<void(ncclComm&)>& fn) {
  std::lock_guard lock(handles().mutex);
  for (ncclComm& comm : handles().all)
    if (comm.generation == fork_generation() && comm.state.load() != CommState::kDead) fn(comm);
}

void check_handle(const ncclComm* comm, const char* argument) {
  if (comm == nullptr) fail(ncclInvalidArgument, "{} is NULL", argument);
  if (comm->magic != ncclComm::kMagic)
    fail(ncclInvalidArgument, "{} is not a communicator", argument);
  check_process(*comm);
  if (comm->state.load() == CommState::kDead)
    fail(ncclInvalidArgument, "{} has been destroyed or aborted already", argument);
}

Use::Use(ncclComm& comm, bool for_operations) : comm_(&comm) {
  check_process(comm);
  log::set_thread_device(comm.device);
  comm.users.fetch_add(1);
  const CommState state = comm.state.load();
  const bool usable =
      state == CommState::kReady ||
      (!for_operations && (state == CommState::kRevoked || state == CommState::kFinalized));
  if (usable) {
    if (for_operations && comm.shrunk.load(std::memory_order_relaxed)) comm.shrunk = false;
    return;
  }
  comm.users.fetch_sub(1);
  comm_ = nullptr;
  switch (state) {
    case CommState::kInitializing:
      fail(ncclInvalidArgument,
           "comm is still being initialized: wait until ncclCommGetAsyncError is not "
           "ncclInProgress");
    case CommState::kFailed: {
      std::lock_guard lock(comm.mutex);
      fail(ncclInvalidUsage, "comm failed to initialize: {}", comm.text);
    }
    case CommState::kFinalized:
      fail(ncclInvalidUsage, "comm has been finalized, only ncclCommDestroy is left");
    case CommState::kSuspending:
    case CommState::kSuspended:
      fail(ncclInvalidUsage, "comm is suspended: ncclCommResume comes first");
    case CommState::kRevoked:
      fail(ncclInvalidUsage, "comm has been revoked, it takes no more operations");
    default:
      fail(ncclInvalidArgument, "comm has been destroyed or aborted already");
  }
}

Use::~Use() {
  if (comm_ != nullptr) comm_->users.fetch_sub(1);
}

bool has_text(ncclComm& comm) {
  std::lock_guard lock(comm.mutex);
  return !comm.text.empty();
}

bool set_text(ncclComm& comm, const std::string& text) {
  std::lock_guard lock(comm.mutex);
  if (comm.text == text) return false;
  comm.text = text;
  return true;
}

}  // namespace weft
