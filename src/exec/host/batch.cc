// Drives lanes round-robin, backs off when nothing moves, and reports every way a wait can end.
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
// After this many idle passes, data from the network goes into the FIFO even if its lane has not
// asked yet.
constexpr uint32_t kPatientPasses = 4;
// A rank that sleeps on sockets checks this often whether it must stop.
constexpr int kNetworkSleepMs = 5;
// A CPU node knows which peer it waits for, so it should report a failure first. A CPU node that
// waits for another one reports this much later. A rank that waits for a CPU node reports twice as
// much later.
constexpr double kNodeSpeaksFirstS = 0.25;
// What a peer sent before it left may be in the network this long.
constexpr double kOnTheWayS = 2;
// After this long it is worth asking the others what they do.
constexpr double kStallsS = 1;

// A waiting thread runs at least every 50 ms. If it did not run for longer than this, its process
// or machine was stopped. That time does not count against peers, whose data may have arrived
// meanwhile.
constexpr auto kStopped = std::chrono::milliseconds(500);

}  // namespace

Task& Batch::add() {
  if (used_ == tasks_.size()) tasks_.emplace_back();
  Task& task = tasks_[used_++];
  task.after = nullptr;
  return task;
}

Outcome Batch::run(size_t helpers) {
  if (used_ == 0) return {};
  single_rank_ = true;
  network_.clear();
  for (size_t t = 0; t < used_; t++) {
    Task& task = tasks_[t];
    single_rank_ = single_rank_ && task.context == tasks_[0].context;
    const uint32_t lanes = task.operation.program.lane_count;
    task.lane_count_ = lanes;
    while (task.lanes_.size() < lanes) task.lanes_.emplace_back();
    task.progress_.assign(lanes, 0);
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
    task.unfinished_.store(lanes, std::memory_order_relaxed);
    const Activity::Begin begun = operation_of(task);
    task.context->activity.begin(begun);
    if (begun.kind != CollectiveKind::kSendRecv)
      task.context->history.add(begun.number, {begun.kind, begun.type, begun.op, begun.root,
                                               task.operation.count * task.operation.element});
  }
  failed_.store(false, std::memory_order_relaxed);
  outcome_taken_.store(false, std::memory_order_relaxed);
  outcome_ = {};
  unfinished_tasks_.store(used_, std::memory_order_release);
  most_helpers_ = helpers;
  // Set before the offer, because workers read it.
  helped_ = helpers > 0 && WorkerPool::instance().any();
  if (helped_) WorkerPool::instance().offer(*this);
  network_.enter();

  Idle idle;
  do {  // not finished yet: every task has a lane
    const bool lanes_moved = pass(0) == Pass::kProgress;
    const bool bytes_moved = network_.drive(idle.passes > kPatientPasses);
    if (lanes_moved || bytes_moved) {
      idle.passes = 0;
      idle.warned = idle.told = idle.peer_gone = false;
      if (idle.noted) note_progress(idle);
    } else {
      wait(idle);
    }
  } while (!finished() && !failed_.load(std::memory_order_acquire));
  if (helped_) WorkerPool::instance().withdraw(*this);
  const bool failed = failed_.load(std::memory_order_relaxed);
  if (failed) {
    network_.abandon();
    take_back();
  }
  network_.leave(false);
  tasks_[0].context->activity.end(failed);
  for (size_t t = 1; t < used_ && !single_rank_; t++) tasks_[t].context->activity.end(failed);
  return std::move(outcome_);
}

Batch::Pass Batch::pass(size_t start) {
  bool progress = false;
  for (size_t i = 0; i < used_; i++) {
    Task& task = tasks_[(start + i) % used_];
    if (task.unfinished_.load(std::memory_order_acquire) == 0) continue;
    if (task.after != nullptr && task.after->unfinished_.load(std::memory_order_acquire) != 0)
      continue;
    for (size_t l = 0; l < task.lane_count_; l++) {
      Task::LaneSlot& slot = task.lanes_[l];
      if (helped_ && slot.taken.exchange(true, std::memory_order_acquire)) continue;
      if (!slot.done) progress |= drive(task, slot);
      if (helped_) slot.taken.store(false, std::memory_order_release);
      if (failed_.load(std::memory_order_relaxed)) return Pass::kProgress;
    }
  }
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
  PastCall here{static_cast<CollectiveKind>(op.collective), static_cast<uint8_t>(op.reduction.type),
                static_cast<uint8_t>(op.reduction.op), op.root, op.count * op.element};
  uint64_t number = op.sequence;
  // The message may belong to an earlier call, in which this rank received nothing.
  if (const auto past = task.context->history.find(h.sequence); past && !send_recv) {
    here = *past;
    number = h.sequence;
  }
  const PastCall there{static_cast<CollectiveKind>(std::min<int>(h.collective, kCollectiveKinds)),
                       h.type, h.op, h.root, h.call_bytes};
  return {
      ncclInvalidUsage,
      fmt::format("{}: operation {} is {} here, but peer {} sent a message of operation {}, {}: "
                  "all ranks must make the same calls in the same order",
                  label, number, describe(here), lane.waits_for, h.sequence, describe(there)),
      &task};
}

// Advances a lane. True if it moved.
bool Batch::drive(Task& task, Task::LaneSlot& slot) {
  HostTarget target;
  Interpreter<HostTarget> interpreter(task.operation, target);
  const bool traced = task.context->track.id() >= 0;
  bool progress = false;
  for (int attempt = 0; attempt < kAttempts; attempt++) {
    // Checked even while there is work: a peer that failed may be about to take back memory it
    // lent.
    if (task.context->stop.load(std::memory_order_acquire) != 0) {
      report_failure({ncclInternalError, "", &task});
      return true;
    }
    switch (traced ? advance_traced(task, slot) : interpreter.advance(slot.state)) {
      case Advance::kAgain:
        progress = true;
        continue;
      case Advance::kBlocked:
        return progress;
      case Advance::kDone:
        slot.done = true;
        if (task.unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
          if (traced) trace_operation(task);
          unfinished_tasks_.fetch_sub(1, std::memory_order_acq_rel);
        }
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
    Task& task = tasks_[t];
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
bool Batch::report_network_fault(const Task& task, const LaneState& lane) {
  const auto report = [&](const auto* port) {
    if (port->stream == nullptr || !port->stream->broken()) return false;
    const StreamFailure why = port->stream->proxy().failure(*port->stream);
    if (why.code == ncclSuccess || why.code == ncclRemoteError) return false;
    report_failure({ncclSystemError,
                    fmt::format("{}, but the network between this rank and rank {} failed: {}",
                                describe_wait(task, lane), port->peer, why.text),
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
    const Task& task = tasks_[t];
    if (task.unfinished_.load(std::memory_order_relaxed) != 0 &&
        task.context->stop.load(std::memory_order_acquire) != 0) {
      report_failure({ncclInternalError, "", &task});
      return;
    }
  }
}

// Finds a waiting lane, preferably one that waits for data. A lane that waits to send may only do
// so because its peer waits for a third rank.
bool Batch::find_wait(Task& task, LaneState& lane) {
  bool found = false;
  for (size_t l = 0; l < task.lane_count_; l++) {
    Task::LaneSlot& slot = task.lanes_[l];
    // A lane that a helper is driving is not waiting.
    if (helped_ && slot.taken.exchange(true, std::memory_order_acquire)) continue;
    const bool waits = !slot.done && slot.state.waits_for >= 0;
    const bool for_data = waits && !slot.state.waits_to_send;
    if (for_data || (waits && !found)) lane = slot.state;
    found = found || waits;
    if (helped_) slot.taken.store(false, std::memory_order_release);
    if (for_data) return true;
  }
  return found;
}

// A task with a waiting lane, preferably one that waits for data.
const Task* Batch::first_unfinished(LaneState& lane) {
  const Task* found = nullptr;
  for (size_t t = 0; t < used_; t++) {
    Task& task = tasks_[t];
    LaneState waiting;
    if (task.unfinished_.load(std::memory_order_relaxed) == 0 || !find_wait(task, waiting))
      continue;
    if (found != nullptr && waiting.waits_to_send) continue;
    lane = waiting;
    found = &task;
    if (!lane.waits_to_send) return found;
  }
  return found;
}

std::string Batch::describe_wait(const Task& task, const LaneState& lane) const {
  return fmt::format(
      "{}: waiting {} {} {} in operation {} ({} of {} bytes), lane {}, step {}, slice {} of {}",
      task.context->label, lane.waits_to_send ? "to send to" : "for data of",
      lane.waits_for >= task.context->cpu_nodes_from ? "CPU node" : "peer", lane.waits_for,
      task.operation.sequence, name(static_cast<CollectiveKind>(task.operation.collective)),
      task.operation.count * task.operation.element, lane.lane, lane.step, lane.iteration,
      task.operation.iterations);
}

// Whether the peer that the lane waits for has gone, and everything it sent has arrived.
bool Batch::is_over(const Task& task, const LaneState& lane, double seconds) {
  const RankContext& context = *task.context;
  if (context.gone == nullptr || !context.gone[lane.waits_for].load()) return false;
  if (seconds > kOnTheWayS) return true;
  if (lane.waits_for >= context.cpu_nodes_from || context.rank >= context.cpu_nodes_from)
    return false;
  // Another stream of the peer may have ended first.
  const auto ended = [&](const auto* port) {
    return port->peer != lane.waits_for || port->stream == nullptr || port->stream->broken();
  };
  return lane.waits_to_send ? std::all_of(task.sends.begin(), task.sends.end(), ended)
                            : std::all_of(task.receives.begin(), task.receives.end(), ended);
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

void Batch::note_waits(Idle& idle) {
  const int64_t since =
      std::chrono::duration_cast<std::chrono::nanoseconds>(idle.since.time_since_epoch()).count();
  const RankContext* noted = nullptr;  // tasks of a rank mostly follow each other
  for (size_t t = 0; t < used_; t++) {
    Task& task = tasks_[t];
    LaneState lane;
    if (task.context == noted || task.unfinished_.load(std::memory_order_relaxed) == 0 ||
        !find_wait(task, lane))
      continue;
    if (used_ > 1) task.context->activity.turn_to(operation_of(task));
    task.context->activity.waits(
        {lane.waits_for, lane.waits_to_send, lane.lane, lane.step, lane.iteration, since});
    noted = task.context;
  }
  idle.noted = true;
}

void Batch::tell_stalls() {
  const RankContext* told = nullptr;
  for (size_t t = 0; t < used_; t++) {
    const Task& task = tasks_[t];
    if (task.context == told || task.unfinished_.load(std::memory_order_relaxed) == 0) continue;
    told = task.context;
    if (task.context->stalls) task.context->stalls();
  }
}

void Batch::note_progress(Idle& idle) {
  for (size_t t = 0; t < used_; t++) tasks_[t].context->activity.moves();
  idle.noted = false;
}

// Spins while an answer within microseconds is likely, then yields, then sleeps at the door.
void Batch::wait(Idle& idle) {
  static const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  const auto ranks = static_cast<uint32_t>(tasks_[0].context->local_ranks);
  const bool crowded = ranks > cores;
  // Two looks before a yield: with 4 ranks on 2 cores an all_reduce of 1 KiB takes 4.2 us, 4.4 with
  // ten looks, 6.0 with forty. How many yields come before a sleep makes no difference.
  const uint32_t spins = crowded ? 2 : 4000;
  const uint32_t yields = ranks > 4 * cores ? 2 : crowded ? 100 : 20;
  if (idle.passes == 0) idle.since = idle.looked = Clock::now();
  idle.passes++;
  if (idle.passes < spins) {
    relax();
    if ((idle.passes & 63) == 0) check_stop();
    return;
  }
  check_stop();
  if (failed_) return;
  if (idle.passes < spins + yields) {
    sched_yield();
    return;
  }
  const RankContext& context = *tasks_[0].context;
  const auto now = Clock::now();
  if (now - idle.looked > kStopped) idle.since += now - idle.looked - kStopped;
  idle.looked = now;
  note_waits(idle);
  double seconds = std::chrono::duration<double>(now - idle.since).count();
  LaneState lane;
  const Task* task = first_unfinished(lane);
  if (task != nullptr && lane.waits_for >= task->context->cpu_nodes_from)
    seconds -= kNodeSpeaksFirstS * (task->context->rank >= task->context->cpu_nodes_from ? 1 : 2);
  if (task != nullptr) {
    if (report_network_fault(*task, lane)) return;
    // One more pass after the look: the last data may have arrived in between.
    const bool gone_before = idle.peer_gone;
    idle.peer_gone = is_over(*task, lane, seconds);
    if (idle.peer_gone && !gone_before) return;
    if (idle.peer_gone)
      return report_failure(
          {ncclRemoteError,
           describe_wait(*task, lane) +
               ", but that peer has left the communicator, or its connection broke" +
               network_.failure(),
           task});
    if (context.timeout_s > 0 && seconds > context.timeout_s)
      return report_failure(
          {ncclRemoteError,
           describe_wait(*task, lane) + fmt::format(": gave up after {:.1f} s (WEFT_TIMEOUT){}",
                                                    seconds, about_peer(*task, lane)),
           task});
    if (seconds > kStallsS && !idle.told) {
      idle.told = true;
      tell_stalls();
    }
    if (context.stall_warning_s > 0 && seconds > context.stall_warning_s && !idle.warned) {
      WEFT_TELL("{}: for {:.0f} s already{}", describe_wait(*task, lane), seconds,
                about_peer(*task, lane));
      idle.warned = true;
    }
  }
  if (network_.all()) return network_.sleep(kNetworkSleepMs);
  network_.leave(true);
  const uint32_t ticket = prepare_sleep(*context.door);
  check_stop();
  // The door belongs to the first rank. A batch of several ranks, or with helpers, polls at least
  // every 100 us.
  if (!failed_ && pass(0) == Pass::kIdle)
    sleep(*context.door, ticket,
          std::min<uint64_t>(context.longest_sleep_ns,
                             single_rank_ && !helped_ ? 50'000'000 : 100'000));
  else
    idle.passes = 0;
  network_.enter();
}

}  // namespace weft::host
