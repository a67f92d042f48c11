// The reports of a batch: to an observer, and to the timeline of WEFT_TRACE (operations, steps of
// lanes, and waits).
#include "src/exec/host/batch.h"
#include "src/exec/host/stream_traffic.h"
#include "src/exec/host/target.h"
#include "src/exec/interpreter.h"
#include "src/schedule/collective.h"

namespace weft::host {
namespace {

trace::Span span_of(const Task& task, const LaneState& lane, int64_t begin, int64_t end) {
  trace::Span span;
  span.begin = begin;
  span.end = end;
  span.track = task.context->track.id();
  span.row = static_cast<int32_t>(lane.lane) + 1;
  span.operation = task.operation.sequence;
  span.step = static_cast<int32_t>(lane.step);
  span.slice = lane.iteration;
  return span;
}

}  // namespace

void Batch::tell_observer(const Task& task) {
  OperationObserver& observer = *task.context->observer;
  observer.begins(task.call, stream_traffic(task.operation));
  observer.launched();
}

Advance Batch::advance_traced(Task& task, Task::LaneSlot& slot) {
  HostTarget target;
  Interpreter<HostTarget> interpreter(task.operation, target);
  const LaneState before = slot.state;
  const int64_t begin = trace::now();
  const Advance outcome = interpreter.advance(slot.state);
  if (outcome == Advance::kBlocked) {
    if (slot.blocked_since == 0) slot.blocked_since = begin;
    return outcome;
  }
  if (slot.blocked_since != 0) {
    trace::Span wait = span_of(task, before, slot.blocked_since, begin);
    wait.name = before.waits_for < 0   ? "wait for a lane"
                : before.waits_to_send ? "wait for room"
                                       : "wait for data";
    wait.from = before.waits_for;
    trace::add(wait);
    slot.blocked_since = 0;
  }
  if (outcome != Advance::kAgain) return outcome;
  const ProgramView& program = task.operation.program;
  const ProgramStep& step = program.steps[program.lanes[before.lane].first_step + before.step];
  trace::Span span = span_of(task, before, begin, trace::now());
  span.bytes = interpreter.message_bytes(step, before.iteration);
  const ProgramOperand* operand = program.operands + step.first_operand;
  for (uint32_t i = 0; i < step.sources; i++)
    if (operand[i].buffer == ProgramBuffer::kPeer)
      span.from = task.receives[static_cast<size_t>(operand[i].index)]->peer;
  for (uint32_t i = step.sources; i < static_cast<uint32_t>(step.sources + step.destinations); i++)
    if (operand[i].buffer == ProgramBuffer::kPeer)
      span.to = task.sends[static_cast<size_t>(operand[i].index)]->peer;
  span.name = step.sources > 1                 ? (span.to >= 0 ? "reduce, send" : "reduce")
              : span.from >= 0 && span.to >= 0 ? "receive, send"
              : span.from >= 0                 ? "receive"
              : span.to >= 0                   ? "send"
                                               : "copy";
  trace::add(span);
  return outcome;
}

void Batch::trace_operation(const Task& task) {
  trace::Span span;
  span.begin = task.began_;
  span.end = trace::now();
  span.track = task.context->track.id();
  span.name = name(static_cast<CollectiveKind>(task.operation.collective)).data();
  span.operation = task.operation.sequence;
  span.bytes = task.operation.count * task.operation.element;
  span.plan = task.plan;
  span.means = task.means;
  trace::add(span);
}

}  // namespace weft::host
