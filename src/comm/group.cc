// See group.h.
#include "src/comm/group.h"

#include <algorithm>
#include <list>
#include <map>
#include <thread>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/group_work.h"
#include "src/comm/observation.h"
#include "src/comm/siblings.h"

namespace weft {

void check_free(const ncclComm& comm) {
  if (comm.started.load(std::memory_order_relaxed))
    fail(ncclInvalidUsage,
         "a call of this communicator was started and runs: weftWait comes first");
}

namespace {

struct PendingCall {
  ncclComm* comm;
  Call call;
};

struct Group {
  int depth = 0;
  std::vector<PendingCall> calls;
  std::vector<PendingOneSided> one_sided;
  std::vector<CommunicatorWork> together;
  std::vector<InitJob> jobs;
  ncclResult_t error = ncclSuccess;
  std::string text;

  void reset() {
    depth = 0;
    calls.clear();
    one_sided.clear();
    together.clear();
    jobs.clear();
    error = ncclSuccess;
    text.clear();
  }
};

thread_local Group group;
thread_local host::Batch thread_batch;

size_t call_bytes(const Call& call) { return call.count * element_size(call.reduction.type); }

// A communicator cannot go on after a failed operation, because its FIFOs are out of step. All
// ranks are told.
[[noreturn]] void fail_batch(const host::Outcome& outcome, const std::vector<ncclComm*>& comms) {
  ncclComm* culprit = nullptr;
  for (ncclComm* comm : comms)
    if (outcome.culprit != nullptr && comm->impl->host_tasks().has(outcome.culprit->context))
      culprit = comm;
  FaultState::Answer answer{outcome.code, outcome.text};
  if (culprit != nullptr) answer = culprit->impl->give_up(outcome.code, outcome.text);
  for (ncclComm* comm : comms) {
    if (comm != culprit)
      comm->impl->give_up(answer.code,
                          "an operation launched in the same group failed: " + answer.text);
    set_text(*comm, answer.text);
  }
  throw Error(answer.code, answer.text);
}

// `accepted`: the communicators may have been finalized since the calls were made.
void launch(host::Batch& batch, std::span<const PendingCall> calls, bool accepted = false) {
  std::vector<ncclComm*> comms;
  for (const PendingCall& pending : calls)
    if (std::find(comms.begin(), comms.end(), pending.comm) == comms.end())
      comms.push_back(pending.comm);
  std::vector<Use> uses;
  uses.reserve(comms.size());
  for (ncclComm* comm : comms) {
    uses.emplace_back(*comm, !accepted);
    if (!accepted) check_free(*comm);
    note_caller(*comm, accepted);
    uses.back()->check();
    uses.back()->begin();
  }
  std::list<std::vector<const Call*>> per_comm;
  std::list<Observation> watched;
  for (size_t c = 0; c < comms.size(); c++) {
    std::vector<const Call*>& own = per_comm.emplace_back();
    for (const PendingCall& pending : calls)
      if (pending.comm == comms[c]) own.push_back(&pending.call);
    if (uses[c]->on_gpu() || Observation::wanted(*comms[c])) watched.emplace_back(*comms[c], own);
    if (uses[c]->on_gpu()) uses[c]->launch(own);
  }
  batch.clear();
  size_t bytes = 0, c = 0;
  for (const std::vector<const Call*>& own : per_comm) {
    const Use& use = uses[c++];
    if (use->on_gpu()) continue;
    for (const Call* call : own) bytes += call_bytes(*call);
    use->add_to(batch, own);
  }
  if (batch.empty()) return;
  for (const Use& use : uses) use->hand_over();
  // A thread that drives several ranks gets helper threads for large calls. A thread per rank needs
  // none.
  const size_t helpers = bytes >= (size_t{256} << 10) ? comms.size() - 1 : 0;
  const host::Outcome outcome = batch.run(helpers);
  if (outcome.code != ncclSuccess) fail_batch(outcome, comms);
}

// The common case: one blocking call outside a group. It allocates nothing once warm.
void launch_one(host::Batch& batch, ncclComm& comm, const Call& call) {
  const Use use(comm);
  check_free(comm);
  note_caller(comm, false);
  use->check();
  const Call* const calls[] = {&call};
  const Observation watched(comm, calls);
  if (use->on_gpu()) return use->launch(calls);
  use->begin();
  batch.clear();
  use->add_to(batch, call);
  if (batch.empty()) return;
  use->hand_over();
  const host::Outcome outcome = batch.run(0);
  if (outcome.code != ncclSuccess) fail_batch(outcome, {&comm});
}

// For non-blocking communicators. The calls run on their own thread. ncclCommGetAsyncError tells
// when they are done.
ncclResult_t launch_in_background(std::vector<PendingCall> calls) {
  std::vector<ncclComm*> comms;
  for (const PendingCall& pending : calls)
    if (std::find(comms.begin(), comms.end(), pending.comm) == comms.end())
      comms.push_back(pending.comm);
  for (ncclComm* comm : comms) {
    wait_for_background_calls(*comm);
    { const Use check(*comm); }
    check_free(*comm);
  }
  for (ncclComm* comm : comms) {
    comm->users.fetch_add(1);
    comm->progress.begin();
  }
  const auto finish = [comms](ncclResult_t result) {
    for (ncclComm* comm : comms) {
      comm->progress.end(result);
      comm->users.fetch_sub(1);
    }
  };
  const auto run = [calls = std::move(calls), comms, finish] {
    ncclResult_t result = ncclSuccess;
    try {
      host::Batch batch;
      launch(batch, calls, true);
    } catch (const Error& error) {
      result = error.code();
      for (ncclComm* comm : comms) set_text(*comm, error.what());
    } catch (const std::exception& error) {
      result = ncclInternalError;
      for (ncclComm* comm : comms) set_text(*comm, error.what());
    }
    finish(result);
  };
  try {
    std::thread(run).detach();
  } catch (const std::system_error& error) {
    finish(ncclSystemError);
    fail(ncclSystemError, "no thread for a non-blocking call: {}", error.what());
  }
  return ncclInProgress;
}

}  // namespace

void wait_for_background_calls(const ncclComm& comm) {
  while (comm.progress.get() == ncclInProgress && comm.state.load() == CommState::kReady)
    std::this_thread::sleep_for(std::chrono::microseconds(20));
}

bool in_group() { return group.depth > 0; }

void group_start() { group.depth++; }

void note_group_error(ncclResult_t code, const std::string& text) {
  if (group.depth == 0 || group.error != ncclSuccess) return;
  group.error = code;
  group.text = text;
}

void add_to_group(InitJob job) { group.jobs.push_back(std::move(job)); }

GroupEstimate group_discard() {
  if (group.depth == 0) fail(ncclInvalidUsage, "ncclGroupSimulateEnd without ncclGroupStart");
  GroupEstimate estimate{group.calls.size(), 0, true};
  // The group ends even if a call has no plan.
  const bool outermost = --group.depth == 0;
  std::vector<PendingCall> calls;
  if (outermost) {
    calls.swap(group.calls);
    discard(group.jobs);
    group.reset();
  } else {
    calls = group.calls;
  }
  // Calls of one communicator run one after the other. Communicators run in parallel.
  std::map<const ncclComm*, double> sums;
  for (const PendingCall& pending : calls) {
    const Use use(*pending.comm, false);
    const double us = use->estimate_us(pending.call);
    estimate.known = estimate.known && us > 0;
    double& sum = sums[pending.comm];
    sum += us;
    estimate.us = std::max(estimate.us, sum);
  }
  return estimate;
}

ncclResult_t group_end() {
  if (group.depth == 0) fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  Group mine;
  std::swap(mine.calls, group.calls);
  std::swap(mine.jobs, group.jobs);
  std::swap(mine.one_sided, group.one_sided);
  std::swap(mine.together, group.together);
  std::swap(mine.error, group.error);
  std::swap(mine.text, group.text);
  if (mine.error != ncclSuccess) {
    discard(mine.jobs);
    throw Error(mine.error, "a call inside the group failed: " + mine.text);
  }
  ncclResult_t result = ncclSuccess;
  if (!mine.jobs.empty()) result = run_init_jobs(std::move(mine.jobs));
  if (!mine.together.empty()) run_all(mine.together);
  if (mine.calls.empty()) {
    launch(mine.one_sided);
    return result;
  }
  const bool blocking =
      std::all_of(mine.calls.begin(), mine.calls.end(),
                  [](const PendingCall& pending) { return pending.comm->config.blocking; });
  if (!blocking && !cuda::available()) {
    result = launch_in_background(std::move(mine.calls));
    launch(mine.one_sided);
    return result;
  }
  launch(thread_batch, mine.calls);
  launch(mine.one_sided);
  mine.calls.clear();
  std::swap(mine.calls, group.calls);  // keep the memory
  return result;
}

ncclResult_t submit(ncclComm& comm, OneSidedCall call) {
  {
    const Use use(comm);
    use->one_sided().check(call);
  }
  if (in_group()) {
    group.one_sided.push_back({&comm, std::move(call)});
    return ncclSuccess;
  }
  const PendingOneSided one[] = {{&comm, std::move(call)}};
  launch(one);
  return ncclSuccess;
}

void run_together(ncclComm& comm, std::function<void()> work) {
  if (!in_group()) return work();
  group.together.push_back({&comm, std::move(work)});
}

void run_accepted(ncclComm& comm, std::span<const Call> calls) {
  std::vector<PendingCall> pending;
  for (const Call& call : calls) pending.push_back({&comm, call});
  launch(thread_batch, pending, true);
}

ncclResult_t submit(ncclComm& comm, std::span<const Call> calls) {
  std::vector<PendingCall> pending;
  for (const Call& call : calls) pending.push_back({&comm, call});
  if (in_group()) {
    group.calls.insert(group.calls.end(), pending.begin(), pending.end());
    return ncclSuccess;
  }
  if (!comm.config.blocking && !cuda::available()) return launch_in_background(std::move(pending));
  launch(thread_batch, pending);
  return ncclSuccess;
}

ncclResult_t submit(ncclComm& comm, const Call& call) {
  if (in_group()) {
    group.calls.push_back({&comm, call});
    return ncclSuccess;
  }
  // On GPUs a launch never waits for peers, so it needs no background thread.
  if (!comm.config.blocking && !cuda::available()) return launch_in_background({{&comm, call}});
  launch_one(thread_batch, comm, call);
  return ncclSuccess;
}

}  // namespace weft
