// What a batch does when no lane moves: backs off, and reports every way a wait can end.
#include <sched.h>

#include <algorithm>
#include <thread>

#include "src/base/log.h"
#include "src/base/log_time.h"
#include "src/base/relax.h"
#include "src/exec/host/batch.h"
#include "src/schedule/collective.h"
#include "src/transport/doorbell.h"
#include "src/transport/net_stream.h"

namespace weft::host {
namespace {

using Clock = std::chrono::steady_clock;

// A rank that sleeps on sockets checks this often whether it must stop.
constexpr int kNetworkSleepMs = 5;
// A CPU node knows which peer it waits for, so it should report a failure first. A CPU node that
// waits for another one reports this much later. A rank that waits for a CPU node reports twice as
// much later.
constexpr double kNodeSpeaksFirstS = 0.25;
// What a peer sent before it left may be in the network this long.
constexpr double kOnTheWayS = 2;

// A waiting thread runs at least every 50 ms. If it did not run for longer than this, its process
// or machine was stopped. That time does not count against peers, whose data may have arrived
// meanwhile.
constexpr auto kStopped = std::chrono::milliseconds(500);

}  // namespace

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
    Task& task = *tasks_[t];
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

// A task that could run, but its caller has not said so yet.
const Task* Batch::first_not_ready() const {
  for (size_t t = 0; t < used_; t++) {
    const Task& task = *tasks_[t];
    if (task.ready == nullptr || task.unfinished_.load(std::memory_order_relaxed) == 0) continue;
    if (task.after != nullptr && task.after->unfinished_.load(std::memory_order_acquire) != 0)
      continue;
    if (__atomic_load_n(task.ready, __ATOMIC_ACQUIRE) == 0) return &task;
  }
  return nullptr;
}

void Batch::report_not_ready(Idle& idle, const Task& task, double seconds) {
  const RankContext& context = *task.context;
  const std::string what = fmt::format(
      "{}: a part of operation {} ({}) waits for its ready word", context.label,
      task.operation.sequence, name(static_cast<CollectiveKind>(task.operation.collective)));
  if (context.timeout_s > 0 && seconds > context.timeout_s)
    return report_failure({ncclInvalidUsage,
                           what + fmt::format(": gave up after {:.1f} s (WEFT_TIMEOUT)", seconds),
                           &task});
  if (idle.warned || context.stall_warning_s <= 0 || seconds <= context.stall_warning_s) return;
  WEFT_TELL("{}: for {:.0f} s already", what, seconds);
  idle.warned = true;
}

std::string Batch::describe_wait(const Task& task, const LaneState& lane, const Idle& idle) const {
  const Operation& op = task.operation;
  const double seconds = std::chrono::duration<double>(Clock::now() - idle.since).count();
  return fmt::format(
      "{}: waiting {} {} {} since {} in operation {} ({} of {} bytes, type {}), lane {}, step {}, "
      "slice {} of {}{}",
      task.context->label, lane.waits_to_send ? "to send to" : "for data of",
      lane.waits_for >= task.context->cpu_nodes_from ? "CPU node" : "peer", lane.waits_for,
      log::utc_time(seconds), op.sequence, name(static_cast<CollectiveKind>(op.collective)),
      op.count * op.element, type_name(static_cast<int>(op.reduction.type)), lane.lane, lane.step,
      lane.iteration, op.iterations, task.context->place);
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

void Batch::note_waits(Idle& idle) {
  const int64_t since =
      std::chrono::duration_cast<std::chrono::nanoseconds>(idle.since.time_since_epoch()).count();
  const RankContext* noted = nullptr;  // tasks of a rank mostly follow each other
  for (size_t t = 0; t < used_; t++) {
    Task& task = *tasks_[t];
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
    const Task& task = *tasks_[t];
    if (task.context == told || task.unfinished_.load(std::memory_order_relaxed) == 0) continue;
    told = task.context;
    if (task.context->stalls) task.context->stalls();
  }
}

void Batch::note_progress(Idle& idle) {
  for (size_t t = 0; t < used_; t++) tasks_[t]->context->activity.moves();
  idle.noted = false;
}

// Spins while an answer within microseconds is likely, then yields, then sleeps at the door.
void Batch::wait(Idle& idle) {
  static const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  const auto ranks = static_cast<uint32_t>(tasks_[0]->context->local_ranks);
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
  const RankContext& context = *tasks_[0]->context;
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
    if (report_network_fault(*task, lane, idle)) return;
    // One more pass after the look: the last data may have arrived in between.
    const bool gone_before = idle.peer_gone;
    idle.peer_gone = is_over(*task, lane, seconds);
    if (idle.peer_gone && !gone_before) return;
    if (idle.peer_gone)
      return report_failure(
          {ncclRemoteError,
           describe_wait(*task, lane, idle) +
               ", but that peer has left the communicator, or its connection broke" +
               network_.failure(),
           task});
    if (context.timeout_s > 0 && seconds > context.timeout_s)
      return report_failure({ncclRemoteError,
                             describe_wait(*task, lane, idle) +
                                 fmt::format(": gave up after {:.1f} s (WEFT_TIMEOUT){}", seconds,
                                             about_peer(*task, lane)),
                             task});
    if (seconds > idle.tell_s) {
      idle.tell_s = 2 * seconds;
      tell_stalls();
    }
    if (context.stall_warning_s > 0 && seconds > context.stall_warning_s && !idle.warned) {
      WEFT_TELL("{}: for {:.0f} s already{}", describe_wait(*task, lane, idle), seconds,
                about_peer(*task, lane));
      idle.warned = true;
    }
  }
  // Nobody rings when a ready word is set.
  const Task* const gated = first_not_ready();
  if (task == nullptr && gated != nullptr) report_not_ready(idle, *gated, seconds);
  if (network_.all()) return network_.sleep(gated != nullptr ? 1 : kNetworkSleepMs);
  network_.leave(true);
  const uint32_t ticket = prepare_sleep(*context.door);
  check_stop();
  // The door belongs to the first rank. A batch of several ranks, or with helpers, polls at least
  // every 100 us.
  if (!failed_ && pass(0) == Pass::kIdle)
    sleep(*context.door, ticket,
          std::min<uint64_t>(context.longest_sleep_ns,
                             single_rank_ && !helped_ && gated == nullptr ? 50'000'000 : 100'000));
  else
    idle.passes = 0;
  network_.enter();
}

}  // namespace weft::host
