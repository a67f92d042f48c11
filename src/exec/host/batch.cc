// Drives lanes round-robin. What happens when none moves is in batch_wait.cc.
#include "src/exec/host/batch.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/relax.h"
#include "src/exec/host/target.h"
#include "src/exec/host/workers.h"
#include "src/exec/interpreter.h"
#include "src/schedule/collective.h"
#include "src/transport/net_stream.h"

namespace weft::host {
namespace {

using Clock = std::chrono::steady_clock;

// Steps a lane may take before the next lane runs.
constexpr int kAttempts = 4;
constexpr uint32_t kMostSkipped = 16;
// After this many idle passes, data from the network goes into the FIFO even if its lane has not
// asked yet.
constexpr uint32_t kPatientPasses = 4;

// Bytes of the call's block that a lane moves.
uint64_t block_bytes(const Operation& op, const LaneState& lane) {
  HostTarget target;
  const ProgramLane& of = op.program.lanes[lane.lane];
  return Interpreter<HostTarget>(op, target)
      .call_bytes(op.program.steps[of.first_step + (lane.step < of.steps ? lane.step : 0)]);
}

}  // namespace

Task& Batch::add() {
  if (used_ == tasks_.size()) tasks_.push_back(std::make_unique<Task>());
  Task& task = *tasks_[used_++];
  task.after = nullptr;
  task.ready = nullptr;
  task.done = nullptr;
  return task;
}

// Puts a task at its beginning.
inline void Batch::prepare(Task& task) {
  const uint32_t lanes = task.operation.program.lane_count;
  task.lane_count_ = lanes;
  if (task.lane_room_ < lanes) {
    task.lanes_ = std::make_unique<Task::LaneSlot[]>(lanes);
    task.lane_room_ = lanes;
  }
  task.progress_.assign(lanes, 0);
  task.plain_ = task.operation.inputs == nullptr && task.operation.program.codecs == nullptr;
  task.operation.progress = task.progress_.data();
  task.operation.sends = task.sends.data();
  task.operation.receives = task.receives.data();
  network_.add(task.sends, task.receives);
  if (task.context->observer != nullptr) tell_observer(task);
  for (uint32_t l = 0; l < lanes; l++) {
    LaneState& state = task.lanes_[l].state;
    state.lane = l;
    state.step = 0;
    state.iteration = 0;
    state.lent = false;
    state.failure = LaneState::Failure::kNone;
    state.waits_for = -1;  // the old value may be from another communicator
    task.lanes_[l].done = false;
    task.lanes_[l].blocked_since = 0;
  }
  if (task.context->track.id() >= 0) task.began_ = trace::now();
  task.unfinished_.store(lanes + 1, std::memory_order_relaxed);
  const Activity::Begin begun = operation_of(task);
  task.context->activity.begin(begun);
  if (begun.kind != CollectiveKind::kSendRecv)
    task.context->history.add(begun.number,
                              common_call(begun.kind, begun.type, begun.op, begun.root,
                                          task.operation.count * task.operation.element));
}

Outcome Batch::run(size_t helpers) {
  if (used_ == 0) return {};
  single_rank_ = true;
  mixed_ = false;
  Priority highest = tasks_[0]->context->priority;
  network_.clear();
  for (size_t t = 0; t < used_; t++) {
    Task& task = *tasks_[t];
    single_rank_ = single_rank_ && task.context == tasks_[0]->context;
    const Priority priority = task.context->priority;
    mixed_ = mixed_ || priority != highest;
    highest = std::max(highest, priority);
    prepare(task);
  }
  failed_.store(false, std::memory_order_relaxed);
  outcome_taken_.store(false, std::memory_order_relaxed);
  outcome_ = {};
  unfinished_tasks_.store(used_, std::memory_order_release);
  most_helpers_ = helpers;
  turn_.begin(highest);
  // Set before the offer, because workers read it.
  helped_ = helpers > 0 && WorkerPool::instance().any();
  if (helped_) WorkerPool::instance().offer(*this);
  const bool networked = network_.any();
  if (networked) network_.enter();

  const auto over = [this] { return finished() || failed_.load(std::memory_order_acquire); };
  Idle idle;
  for (;;) {  // not finished yet: every task has a lane
    const bool lanes_moved = pass(0) == Pass::kProgress;
    const bool bytes_moved = networked && network_.drive(idle.passes > kPatientPasses);
    if (lanes_moved || bytes_moved) {
      idle.passes = 0;
      idle.warned = idle.peer_gone = false;
      idle.tell_s = kStallsS;
      if (idle.noted) note_progress(idle);
    } else {
      wait(idle);
    }
    if (over()) break;
    if (turn_.counts()) turn_.next(lanes_moved || bytes_moved);
  }
  turn_.end();
  if (helped_) WorkerPool::instance().withdraw(*this);
  const bool failed = failed_.load(std::memory_order_relaxed);
  if (failed) {
    network_.abandon();
    take_back();
  }
  if (networked) network_.leave(false);
  tasks_[0]->context->activity.end(failed);
  for (size_t t = 1; t < used_ && !single_rank_; t++) tasks_[t]->context->activity.end(failed);
  return std::move(outcome_);
}

bool Batch::may_run(const Task& task) {
  if (task.after != nullptr && task.after->unfinished_.load(std::memory_order_acquire) != 0)
    return false;
  return task.ready == nullptr || __atomic_load_n(task.ready, __ATOMIC_ACQUIRE) != 0;
}

// Drives all lanes once; `only`: those of one class.
bool Batch::sweep(size_t start, const Priority* only) {
  bool progress = false;
  for (size_t i = 0, t = start % used_; i < used_; i++, t = t + 1 < used_ ? t + 1 : 0) {
    Task& task = *tasks_[t];
    if (only != nullptr && task.context->priority.load(std::memory_order_relaxed) != *only)
      continue;
    if (task.unfinished_.load(std::memory_order_acquire) == 0) continue;
    if (!may_run(task)) continue;
    for (size_t l = 0; l < task.lane_count_; l++) {
      Task::LaneSlot& slot = task.lanes_[l];
      if (helped_ && slot.taken.exchange(true, std::memory_order_acquire)) continue;
      if (!slot.done) progress |= drive(task, slot);
      if (helped_) slot.taken.store(false, std::memory_order_release);
      if (failed_.load(std::memory_order_relaxed)) return true;
    }
  }
  return progress;
}

// While a class moves, lower ones have their turn in every kMostSkipped-th pass only.
Batch::Pass Batch::pass(size_t start) {
  if (!mixed_) return sweep(start, nullptr) ? Pass::kProgress : Pass::kIdle;
  bool progress = false;
  for (const Priority priority : {Priority::kHigh, Priority::kNormal, Priority::kLow}) {
    if (progress && skipped_.fetch_add(1, std::memory_order_relaxed) < kMostSkipped)
      return Pass::kProgress;
    progress = sweep(start, &priority) || progress;
  }
  skipped_.store(0, std::memory_order_relaxed);
  return progress ? Pass::kProgress : Pass::kIdle;
}

// What the failure of a lane means, in words.
Outcome Batch::failure_of(const Task& task, const LaneState& lane) {
  const Operation& op = task.operation;
  const MessageHeader& h = lane.seen;
  const std::string& label = task.context->label;
  if (lane.failure == LaneState::Failure::kClosed)
    return {ncclRemoteError,
            fmt::format("{}: peer {} gave up an operation in the middle", label, lane.waits_for),
            &task};
  if (lane.failure != LaneState::Failure::kMismatch)
    return {ncclSystemError,
            fmt::format("{}: cannot map shared segment {} of peer {}", label, h.segment,
                        lane.waits_for),
            &task};
  const auto kind = name(static_cast<CollectiveKind>(op.collective));
  if (h.plan != op.plan && h.sequence == op.sequence && h.collective == op.collective)
    return {ncclInvalidUsage,
            fmt::format("{}: operation {} ({}) runs as {} here, but as {} on peer {}: imported "
                        "schedules need buffers in place on all ranks or on none, and compression "
                        "must be set alike",
                        label, op.sequence, kind,
                        op.plan == 0 ? "a built-in plan" : "an imported or compressed schedule",
                        h.plan == 0    ? "a built-in plan"
                        : op.plan == 0 ? "an imported or compressed schedule"
                                       : "another one",
                        lane.waits_for),
            &task};
  const bool send_recv = op.collective == static_cast<uint8_t>(CollectiveKind::kSendRecv);
  const uint64_t bytes = block_bytes(op, lane);
  if (op.inputs != nullptr && h.sequence == op.sequence && h.collective == op.collective &&
      h.call_bytes != bytes)
    return {ncclInvalidUsage,
            fmt::format("{}: operation {} ({}): this rank receives {} bytes from rank {}, which "
                        "sends {}: the counts of both must agree",
                        label, op.sequence, kind, bytes, lane.waits_for, h.call_bytes),
            &task};
  PastCall here{static_cast<CollectiveKind>(op.collective), static_cast<uint8_t>(op.reduction.type),
                static_cast<uint8_t>(op.reduction.op), op.root, bytes};
  uint64_t number = op.sequence;
  // The message may belong to an earlier call, in which this rank received nothing.
  if (const auto past = task.context->history.find(h.sequence); past && !send_recv) {
    here = *past;
    number = h.sequence;
  }
  const PastCall there{static_cast<CollectiveKind>(std::min<int>(h.collective, kNamedKinds)),
                       h.type, h.op, h.root, h.call_bytes};
  return {
      ncclInvalidUsage,
      fmt::format("{}: operation {} is {} here, but peer {} sent a message of operation {}, {}: "
                  "all ranks must make the same calls in the same order",
                  label, number, describe(here), lane.waits_for, h.sequence, describe(there)),
      &task};
}

// All lanes are done. Tasks that come after this one start when all its words are written.
void Batch::finish(Task& task) {
  if (task.context->track.id() >= 0) trace_operation(task);
  for (uint32_t w = 0; w < task.done_words && task.done != nullptr; w++)
    __atomic_store_n(&task.done[w], 1, __ATOMIC_RELEASE);
  task.unfinished_.store(0, std::memory_order_release);
  unfinished_tasks_.fetch_sub(1, std::memory_order_acq_rel);
}

inline Advance Batch::advance(const Task& task, Task::LaneSlot& slot) {
  if (task.plain_) {
    PlainTarget target;
    return Interpreter<PlainTarget>(task.operation, target).advance(slot.state);
  }
  HostTarget target;
  return Interpreter<HostTarget>(task.operation, target).advance(slot.state);
}

// Advances a lane. True if it moved.
bool Batch::drive(Task& task, Task::LaneSlot& slot) {
  const bool traced = task.context->track.id() >= 0;
  bool progress = false;
  for (int attempt = 0; attempt < kAttempts; attempt++) {
    // Checked even while there is work: a peer that failed may be about to take back memory it
    // lent.
    if (task.context->stop.load(std::memory_order_acquire) != 0) {
      report_failure({ncclInternalError, "", &task});
      return true;
    }
    switch (traced ? advance_traced(task, slot) : advance(task, slot)) {
      case Advance::kAgain:
        progress = true;
        if (turn_.counts()) turn_.count(task.operation.slice * task.operation.element);
        continue;
      case Advance::kBlocked:
        return progress;
      case Advance::kDone:
        slot.done = true;
        if (task.unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 2) finish(task);
        return true;
      case Advance::kFailed:
        report_failure(failure_of(task, slot.state));
        return true;
    }
  }
  return progress;
}

// After a failure the caller may free its buffers, so no peer may read lent memory any more. Peers
// that are reading finish their slice. Later reads find the FIFO closed.
void Batch::take_back() {
  const auto deadline = Clock::now() + std::chrono::milliseconds(200);
  for (size_t t = 0; t < used_; t++) {
    Task& task = *tasks_[t];
    bool lent = false;
    for (size_t l = 0; l < task.lane_count_; l++) lent = lent || task.lanes_[l].state.lent;
    if (!lent) continue;
    for (SendPort* port : task.sends) HostTarget::store(&port->control->closed, 1);
    for (const SendPort* port : task.sends)
      while (port->stream == nullptr && HostTarget::load(&port->control->head) < port->lent_until &&
             Clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

std::string Batch::about_peer(const Task& task, const LaneState& lane) {
  const RankContext& context = *task.context;
  return context.about_peer && lane.waits_for < context.cpu_nodes_from
             ? context.about_peer(lane.waits_for)
             : "";
}

// Whether the network to a peer has failed though the peer has not gone. Nothing more will come.
bool Batch::report_network_fault(const Task& task, const LaneState& lane, const Idle& idle) {
  const auto report = [&](const auto* port) {
    if (port->stream == nullptr || !port->stream->broken()) return false;
    const StreamFailure why = port->stream->proxy().failure(*port->stream);
    if (why.code == ncclSuccess || why.code == ncclRemoteError) return false;
    report_failure({ncclSystemError,
                    fmt::format("{}, but the network between this rank and rank {} failed: {}",
                                describe_wait(task, lane, idle), port->peer, why.text),
                    &task});
    return true;
  };
  return std::any_of(task.receives.begin(), task.receives.end(), report) ||
         std::any_of(task.sends.begin(), task.sends.end(), report);
}

void Batch::report_failure(Outcome outcome) {
  if (!outcome_taken_.exchange(true)) outcome_ = std::move(outcome);
  failed_.store(true, std::memory_order_release);
}

void Batch::check_stop() {
  for (size_t t = 0; t < used_; t++) {
    const Task& task = *tasks_[t];
    if (task.unfinished_.load(std::memory_order_relaxed) != 0 &&
        task.context->stop.load(std::memory_order_acquire) != 0) {
      report_failure({ncclInternalError, "", &task});
      return;
    }
  }
}

Activity::Begin Batch::operation_of(const Task& task) {
  const Operation& op = task.operation;
  const auto kind = static_cast<CollectiveKind>(op.collective);
  const bool send_recv = kind == CollectiveKind::kSendRecv, sends = !task.sends.empty();
  const int peer = !send_recv ? op.root : sends ? task.sends[0]->peer : task.receives[0]->peer;
  return {kind,
          send_recv && sends,
          static_cast<uint8_t>(op.reduction.type),
          static_cast<uint8_t>(op.reduction.op),
          peer,
          op.sequence,
          op.count};
}

}  // namespace weft::host
