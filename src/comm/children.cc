// Communicators made from others: split, shrink and grow.
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/bring_up.h"
#include "src/comm/lifecycle.h"
#include "src/comm/siblings.h"

namespace weft {
namespace {

ncclComm* new_child(const ncclComm& parent, const CommConfig& config) {
  ncclComm* comm = new_handle(-1, 0, config);
  comm->device = parent.device;
  comm->issuer = parent.issuer;
  comm->caller = thread_number() << 1;
  return comm;
}

// Runs in the job. `child`: who is in it; the parent is not used any more.
void bring_up_child(ncclComm& parent, ncclComm& comm, const Child& child, const char* function) {
  {
    std::lock_guard lock(comm.mutex);
    comm.rank = child.rank;
    comm.nranks = child.nranks;
  }
  {
    std::lock_guard lock(parent.mutex);
    parent.children.push_back(&comm);
  }
  if (parent.state.load() == CommState::kDead) comm.cancel->cancel();
  if (child.rendezvous != nullptr) child.rendezvous->hand_over();
  bring_up(comm, child.id, function);
}

// While the thread runs, `happens` ends the init of a child when it returns true. Without a thread
// the init's own time limit remains.
template <typename Happens>
std::jthread ended_when(Happens happens, const std::shared_ptr<InitCancel>& init) {
  try {
    return std::jthread([happens, init](std::stop_token stop) {
      if (happens(std::move(stop))) init->cancel();
    });
  } catch (const std::system_error&) {
    return {};
  }
}

// As bring_up_child(). `faults`: the parent's. It lives as long as the job. The dead may be a rank
// that the child waits for. A parent that is `healthy` so far fails with its child; one that had a
// fault before may still be split or shrunk, and only deaths of the child's own ranks count.
void bring_up_guarded(ncclComm& parent, const FaultState& faults, ncclComm& comm,
                      const Child& child, const char* function, bool healthy) {
  const auto fails = [&faults, healthy, members = child.members](std::stop_token stop) {
    return healthy ? faults.wait_known(std::move(stop))
                   : faults.wait_death_of(members, std::move(stop));
  };
  try {
    const std::jthread watch = ended_when(fails, comm.cancel);
    bring_up_child(parent, comm, child, function);
  } catch (const Error& error) {
    if (parent.state.load() == CommState::kDead) throw;
    // Another rank may have heard of the death first, and given up the child.
    const std::chrono::milliseconds most =
        error.code() == ncclRemoteError ? FaultState::kNewsComes : std::chrono::milliseconds(0);
    if (healthy && faults.wait_known(most)) {
      const FaultState::Answer answer = faults.settle();
      throw Error(answer.code, answer.text);
    }
    if (const std::string death = faults.death_of(child.members, most); !death.empty())
      fail(ncclRemoteError, "{}: {}", function, death);
    throw;
  }
}

// A job that failed before its communicator began to come up.
template <typename Work>
auto guarded(ncclComm* comm, Work work) {
  return [comm, work = std::move(work)]() mutable {
    try {
      work();
    } catch (const Error& error) {
      if (comm != nullptr) {
        set_text(*comm, error.what());
        comm->progress.fail(error.code());
        CommState expected = CommState::kInitializing;
        comm->state.compare_exchange_strong(expected, CommState::kFailed);
      }
      throw;
    }
  };
}

}  // namespace

ncclResult_t split(ncclComm& parent, int color, int key, ncclComm** out,
                   const ncclConfig_t* config) {
  auto use = std::make_shared<Use>(parent, false);
  CommConfig child_config = CommConfig::from(config, &parent.config);
  child_config.shares_blocks = parent.config.split_share;
  parent.shrunk = false;
  ncclComm* comm = color == NCCL_SPLIT_NOCOLOR ? nullptr : new_child(parent, child_config);
  const uint64_t round = (*use)->children().reserve_round();
  auto work = guarded(comm, [comm, &parent, use, round, color, key]() mutable {
    const Child child = (*use)->children().split(round, color, key);
    const FaultState& faults = (*use)->faults();
    use.reset();
    const bool healthy = parent.state.load() != CommState::kRevoked;
    if (comm != nullptr) bring_up_guarded(parent, faults, *comm, child, "ncclCommSplit", healthy);
  });
  return start({&parent, comm, out, std::move(work)});
}

ncclResult_t shrink(ncclComm& parent, const std::vector<int>& excluded, ncclComm** out,
                    const ncclConfig_t* config, bool abort_parent) {
  CommConfig child_config = CommConfig::from(config, &parent.config);
  child_config.shares_blocks = !abort_parent && parent.config.shrink_share;
  Child child;
  {
    const Use use(parent, false);
    if (abort_parent)
      use->stop(ncclInvalidUsage, "the communicator was stopped by ncclCommShrink", false);
    child = use->children().shrink(excluded);
  }
  ncclComm* comm = new_child(parent, child_config);
  parent.shrunk = false;
  auto work = guarded(comm, [comm, &parent, child] {
    // Not before the job counts as a user of the parent: that may be aborted meanwhile.
    const FaultState& faults = Use(parent, false)->faults();
    bring_up_guarded(parent, faults, *comm, child, "ncclCommShrink", false);
    if (!parent.config.blocking) parent.shrunk = true;
  });
  return start({&parent, comm, out, std::move(work)});
}

UniqueId grow_id(ncclComm& parent) {
  const Use use(parent);
  std::lock_guard lock(parent.mutex);
  if (parent.next.grown)
    fail(ncclInvalidUsage,
         "comm has an id that was not used yet: one ncclCommGrow after each ncclCommGetUniqueId");
  const UniqueId id = UniqueId::create();
  if (id.fixed != 0)
    fail(ncclInvalidUsage, "NCCL_COMM_ID is set, so there are no ids for communicators that grow");
  parent.next.grown = Child{id, -1, 0, {}, std::make_shared<HeldRendezvous>(id.secret)};
  return id;
}

ncclResult_t grow(ncclComm& parent, int nranks, const UniqueId* id, ncclComm** out,
                  const ncclConfig_t* config) {
  auto use = std::make_shared<Use>(parent);
  const CommConfig child_config = CommConfig::from(config, &parent.config);
  std::optional<Child> own;
  if (id != nullptr) {
    std::lock_guard lock(parent.mutex);
    if (!parent.next.grown || parent.next.grown->id.secret != id->secret)
      fail(ncclInvalidArgument,
           "uniqueId is not the one that ncclCommGetUniqueId made for this communicator, or it was "
           "used before");
    std::swap(own, parent.next.grown);
  }
  ncclComm* comm = new_child(parent, child_config);
  const uint64_t round = (*use)->children().reserve_round();
  auto work = guarded(comm, [comm, &parent, use, round, own, nranks]() mutable {
    Child child =
        (*use)->children().grow(round, own ? std::optional(own->id) : std::nullopt, nranks);
    if (own) child.rendezvous = own->rendezvous;
    const FaultState& faults = (*use)->faults();
    use.reset();
    bring_up_guarded(parent, faults, *comm, child, "ncclCommGrow", true);
  });
  return start({&parent, comm, out, std::move(work)});
}

}  // namespace weft
