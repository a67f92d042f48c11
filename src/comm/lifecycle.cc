// See lifecycle.h.
#include "src/comm/lifecycle.h"

#include <chrono>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "src/base/error.h"
#include "src/base/last_error.h"
#include "src/base/log.h"
#include "src/base/siphash.h"
#include "src/comm/bring_up.h"
#include "src/comm/group.h"
#include "src/comm/siblings.h"
#include "src/comm/suspension.h"

namespace weft {
namespace {

// NCCL_COMM_ID names one address for all communicators of a job. A rank's n-th init joins the n-th
// communicator.
uint64_t generation(int rank) {
  static std::mutex mutex;
  static std::map<int, uint64_t>& count = *std::make_unique<std::map<int, uint64_t>>().release();
  std::lock_guard lock(mutex);
  return count[rank]++;
}

// A number for the calling thread. A thread that joins a communicator several times, with several
// ranks, has one for each of them.
uint64_t issuer_of(const UniqueId& id) {
  thread_local Secret last{};
  thread_local uint64_t ranks = 0;
  ranks = id.secret == last ? ranks + 1 : 0;
  last = id.secret;
  return thread_number() << 16 | ranks;
}

// Waits until at most `most` calls and inits are under way.
void wait_for_users(const ncclComm& comm, int most = 0) {
  while (comm.users.load() > most) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

// Everything that was issued is complete: calls of other threads, and what GPUs run.
void flush(ncclComm& comm) {
  wait_for_users(comm, 1);
  if (GpuLauncher* gpu = comm.impl->gpu(); gpu != nullptr) gpu->synchronize();
  comm.impl->one_sided().synchronize();
}

std::vector<ncclComm*> children_of(ncclComm& comm) {
  std::lock_guard lock(comm.mutex);
  return comm.children;
}

}  // namespace

ncclResult_t init_rank(ncclComm** out, const UniqueId& id, int rank, int nranks,
                       const CommConfig& config, const char* function, const Branch& branch) {
  announce(rank);
  UniqueId own = id;
  if (id.fixed != 0) own.secret = derive(id.secret, "generation", generation(rank));
  ncclComm* comm = new_handle(rank, nranks, config);
  if (cuda::available()) comm->device = cuda::current_device();
  comm->issuer = issuer_of(own);
  comm->caller = thread_number() << 1;
  *out = comm;
  return start(
      {comm, comm, out, [comm, own, function, branch] { bring_up(*comm, own, function, branch); }});
}

ncclResult_t finalize(ncclComm& comm) {
  auto use = std::make_shared<Use>(comm, false);
  CommState expected = CommState::kReady;
  if (!comm.state.compare_exchange_strong(expected, CommState::kFinalized)) {
    if (expected == CommState::kFinalized)
      fail(ncclInvalidArgument, "comm has been finalized already");
    fail(ncclInvalidUsage, "comm has been revoked, it cannot be finalized: destroy it");
  }
  if (comm.config.blocking) {
    flush(comm);
    return ncclSuccess;
  }
  comm.progress.begin();
  try {
    std::thread([&comm, use] {
      flush(comm);
      comm.progress.end(ncclSuccess);
    }).detach();
  } catch (const std::system_error& error) {
    comm.progress.end(ncclSuccess);
    expected = CommState::kFinalized;
    comm.state.compare_exchange_strong(expected, CommState::kReady);
    fail(ncclSystemError, "no thread to finalize comm: {}", error.what());
  }
  return ncclInProgress;
}

void destroy(ncclComm& comm) {
  while (comm.state.load() == CommState::kInitializing)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const CommState state = comm.state.exchange(CommState::kDead);
  if (state == CommState::kDead)
    fail(ncclInvalidArgument, "comm has been destroyed or aborted already");
  wait_for_users(comm);
  const bool ready = state == CommState::kReady || state == CommState::kFinalized;
  std::string lost;
  if (ready) lost = comm.impl->last_words(has_text(comm));
  comm.impl.reset();
  comm.profiler.reset();
  forget(comm);
  if (!lost.empty()) fail(ncclInvalidUsage, "{}", lost);
}

void abort(ncclComm& comm) {
  const CommState state = comm.state.exchange(CommState::kDead);
  if (state == CommState::kDead)
    fail(ncclInvalidArgument, "comm has been destroyed or aborted already");
  for (ncclComm* child : children_of(comm)) child->cancel->cancel();
  if (state == CommState::kInitializing) {
    comm.cancel->cancel();  // bring_up() ends
  } else if (state == CommState::kSuspending) {
    // The job ends it, and was told by all ranks that they do the same.
  } else if (comm.impl != nullptr) {
    GpuLauncher* gpu = comm.impl->gpu();
    const bool busy = comm.users.load() > 0 || (gpu != nullptr && gpu->busy());
    comm.impl->stop(ncclInternalError, fmt::format("rank {} aborted the communicator", comm.rank),
                    state != CommState::kFinalized, !busy);
  }
  wait_for_users(comm);
  comm.impl.reset();
  comm.profiler.reset();
  forget(comm);
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
  if (comm.progress.get() == ncclInProgress) return ncclInProgress;
  if (comm.shrunk.load()) return ncclSuccess;
  if (state == CommState::kReady || state == CommState::kFinalized) {
    const Use use(comm, false);  // another thread may destroy it
    use->poll_gpu();
    const FaultState::Answer fault = use->faults().get();
    if (fault.code != ncclSuccess) {
      if (set_text(comm, fault.text)) remember_error(fault.text);
      return fault.code;
    }
  }
  return comm.progress.get();
}

}  // namespace weft
