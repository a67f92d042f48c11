// See lifecycle.h.
#include "src/comm/lifecycle.h"

#include <chrono>
#include <thread>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/group.h"

namespace weft {
namespace {

std::string label(const ncclComm& comm) {
  return comm.config.name.empty()
             ? fmt::format("rank {} of {}", comm.rank, comm.nranks)
             : fmt::format("rank {} of {} in '{}'", comm.rank, comm.nranks, comm.config.name);
}

// Makes the communicator and puts it into its handle. Runs on the caller's thread, or on one of its
// own.
void bring_up(ncclComm& comm, const UniqueId& id) {
  try {
    auto impl = std::make_unique<Communicator>(id, comm.rank, comm.nranks, label(comm));
    comm.impl = std::move(impl);
    CommState expected = CommState::kInitializing;
    if (!comm.state.compare_exchange_strong(expected, CommState::kReady)) {
      comm.impl.reset();  // aborted meanwhile
      return;
    }
    comm.progress = ncclSuccess;
  } catch (const Error& error) {
    set_text(comm, error.what());
    CommState expected = CommState::kInitializing;
    comm.state.compare_exchange_strong(expected, CommState::kFailed);
    comm.progress = error.code();
    throw;
  }
}

// Runs `work` now, in the group, or in the background, as the communicator and the group ask.
ncclResult_t start(ncclComm& comm, ncclComm** out, std::function<void()> work) {
  InitJob job{&comm, out, std::move(work)};
  if (in_group()) {
    add_to_group(std::move(job));
    return ncclSuccess;
  }
  return run_init_jobs({std::move(job)});
}

void wait_for_users(ncclComm& comm) {
  while (comm.users.load() != 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

}  // namespace

ncclResult_t init_rank(ncclComm** out, const UniqueId& id, int rank, int nranks,
                       const CommConfig& config) {
  ncclComm* comm = new_handle(rank, nranks, config);
  *out = comm;
  return start(*comm, out, [comm, id] { bring_up(*comm, id); });
}

ncclResult_t split(ncclComm& parent, int color, int key, ncclComm** out,
                   const ncclConfig_t* config) {
  auto use = std::make_shared<Use>(parent, false);
  const CommConfig child_config = CommConfig::from(config, &parent.config);
  // Rank and size become known in the job; a handle is needed before.
  ncclComm* comm = color == NCCL_SPLIT_NOCOLOR ? nullptr : new_handle(-1, 0, child_config);
  *out = comm;
  ncclComm* holder = comm != nullptr ? comm : new_handle(-1, 0, child_config);
  return start(*holder, out, [comm, holder, use, color, key]() mutable {
    try {
      const Communicator::Child child = (**use).split(color, key);
      use.reset();
      if (comm == nullptr) {
        holder->progress = ncclSuccess;
        holder->state = CommState::kDead;
        return;
      }
      comm->rank = child.rank;
      comm->nranks = child.nranks;
      bring_up(*comm, child.id);
    } catch (const Error& error) {
      set_text(*holder, error.what());
      holder->progress = error.code();
      CommState expected = CommState::kInitializing;
      holder->state.compare_exchange_strong(expected, CommState::kFailed);
      throw;
    }
  });
}

ncclResult_t shrink(ncclComm& parent, const std::vector<int>& excluded, ncclComm** out,
                    const ncclConfig_t* config, bool abort_parent) {
  const CommConfig child_config = CommConfig::from(config, &parent.config);
  if (abort_parent && parent.impl != nullptr && parent.state.load() == CommState::kReady)
    parent.impl->stop(ncclInvalidUsage, "the communicator was stopped by ncclCommShrink", false);
  Communicator::Child child;
  {
    const Use use(parent, false);
    child = use->shrink(excluded);
  }
  return init_rank(out, child.id, child.rank, child.nranks, child_config);
}

void finalize(ncclComm& comm) {
  const Use use(comm, false);
  // Operations are complete when their calls return; only those of other threads may still run.
  while (comm.users.load() > 1) std::this_thread::sleep_for(std::chrono::microseconds(100));
  CommState expected = CommState::kReady;
  if (!comm.state.compare_exchange_strong(expected, CommState::kFinalized) &&
      expected == CommState::kRevoked)
    fail(ncclInvalidUsage, "comm has been revoked, it cannot be finalized: destroy it");
}

void destroy(ncclComm& comm) {
  while (comm.state.load() == CommState::kInitializing)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (comm.state.exchange(CommState::kDead) == CommState::kDead)
    fail(ncclInvalidArgument, "comm has been destroyed or aborted already");
  wait_for_users(comm);
  comm.impl.reset();
}

void abort(ncclComm& comm) {
  const CommState state = comm.state.exchange(CommState::kDead);
  if (state == CommState::kDead)
    fail(ncclInvalidArgument, "comm has been destroyed or aborted already");
  if (state == CommState::kInitializing) return;  // whoever is bringing it up will find it dead
  if (comm.impl != nullptr)
    comm.impl->stop(ncclInternalError, fmt::format("rank {} aborted the communicator", comm.rank),
                    state != CommState::kFinalized);
  wait_for_users(comm);
  comm.impl.reset();
}

void revoke(ncclComm& comm) {
  CommState expected = CommState::kReady;
  if (!comm.state.compare_exchange_strong(expected, CommState::kRevoked)) {
    if (expected == CommState::kRevoked) return;
    fail(ncclInvalidUsage, "comm cannot be revoked: it is not ready");
  }
  comm.impl->stop(ncclInvalidUsage, fmt::format("rank {} revoked the communicator", comm.rank),
                  false);
  wait_for_users(comm);
}

ncclResult_t async_error(ncclComm& comm) {
  const CommState state = comm.state.load();
  if (state == CommState::kInitializing) return ncclInProgress;
  if (comm.progress.load() == ncclInProgress) return ncclInProgress;
  if (state != CommState::kFailed && comm.impl != nullptr) {
    const ncclResult_t fault = comm.impl->fault_code();
    if (fault != ncclSuccess && state != CommState::kRevoked) {
      set_text(comm, comm.impl->fault());
      return fault;
    }
  }
  return comm.progress.load();
}

}  // namespace weft
