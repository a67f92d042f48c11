// Lanes and their steps: what a step waits for, what it does, and which lanes it wakes at its end.
#include <algorithm>
#include <cmath>

#include "src/simulator/simulation_run.h"

namespace weft {
void SimulationRun::try_begin(int32_t number, int32_t cause) {
  LaneState& lane = lanes_[number];
  if (lane.busy || lane.slice == simulated_ || lane.first == lane.end) return;
  const StepPlan& plan = plans_[lane.step];
  for (; lane.gate < plan.end; lane.gate++) {
    const Wait& wait = waits_[lane.gate];
    if (lane.gate < plan.takes) {
      if (!done(number, wait)) return;
      continue;
    }
    const FifoState& fifo = fifos_[wait.on];
    const bool receives = lane.gate < plan.sends;
    if (receives ? fifo.arrived == fifo.taken : fifo.sent - fifo.taken == options_.fifo_depth) {
      lane.fifo = wait.on;
      return;
    }
  }
  lane.fifo = -1;
  begin_step(number, cause);
}

void SimulationRun::wake(int32_t lane, int32_t fifo, int32_t cause) {
  if (lane >= 0 && lanes_[lane].fifo == fifo) try_begin(lane, cause);
}

bool SimulationRun::done(int32_t number, const Wait& wait) {
  LaneState& state = lanes_[wait.on];
  const int32_t slice = lanes_[number].slice;
  if (state.slice > slice || (state.slice == slice && state.step > wait.step)) return true;
  state.waiting.push_back(number);
  return false;
}

void SimulationRun::begin_step(int32_t number, int32_t cause) {
  LaneState& lane = lanes_[number];
  const StepPlan& plan = plans_[lane.step];
  lane.busy = true;
  if (options_.record) spans_[span_number(number)] = {lane.step, lane.slice, now_, 0, cause};
  for (int32_t w = plan.sends; w < plan.end; w++) fifos_[waits_[w].on].sent++;
  if (!uses_peer_memory_ && plan.us == 0) {  // the fast path, for most schedules
    double end = now_;
    for (int32_t w = plan.sends; w < plan.end; w++) {
      const int32_t f = waits_[w].on;
      const FifoState& fifo = fifos_[f];
      end = std::max(end, send(fifo.route, Purpose::kFifo, f, number, fifo.destination, now_, now_,
                               waits_[w].share));
    }
    push(end, Kind::kStepEnd, static_cast<size_t>(number));
    return;
  }
  lane.pieces = pieces(number);
  lane.begun = lane.ended = 0;
  lane.end_us = now_ + plan.us;
  const double begin = lane.end_us;
  while (lane.begun < std::min(lane.pieces, options_.fifo_depth)) begin_piece(number, begin);
}

void SimulationRun::end_step(int32_t number) {
  LaneState& lane = lanes_[number];
  const int32_t span = span_number(number);
  const StepPlan& plan = plans_[lane.step];
  if (options_.record) spans_[span].end_us = now_;
  if (now_ > end_us_ || last_span_ < 0) {
    end_us_ = now_;
    last_span_ = span;
  }
  lane.busy = false;
  if (++lane.step == lane.end) {
    lane.step = lane.first;
    const bool last = --lanes_left_[lane.slice++] == 0;
    begun_ = std::max(begun_, lane.slice);
    if (last) end_slice();
  }
  lane.gate = plans_[lane.step].after;
  for (int32_t w = plan.takes; w < plan.sends; w++) {
    const int32_t f = waits_[w].on;
    FifoState& fifo = fifos_[f];
    fifo.taken++;
    wake(fifo.producer_lane, f, span);
  }
  woken_.swap(lane.waiting);
  for (const int32_t other : woken_) try_begin(other, span);
  woken_.clear();
  try_begin(number, span);
}

int32_t SimulationRun::pieces(int32_t number) const {
  if (!uses_peer_memory_) return 1;
  const Step& step = step_of(number);
  bool message = false, remote = false;
  for (const auto* operands : {&step.from, &step.to})
    for (const Operand& operand : *operands) {
      message = message || operand.kind == Operand::Kind::kPeer;
      remote = remote || is_remote(graph_.lanes[number].rank, operand);
    }
  if (message || !remote) return 1;
  return static_cast<int32_t>(
      std::clamp(std::ceil(slice_bytes_ * step.count / options_.slice_bytes), 1.0,
                 static_cast<double>(options_.most_slices)));
}

double SimulationRun::piece_bytes(int32_t lane) const {
  return plan_of(lane).bytes / lanes_[lane].pieces;
}

void SimulationRun::begin_piece(int32_t number, double at) {
  LaneState& lane = lanes_[number];
  const Step& step = step_of(number);
  const int32_t rank = graph_.lanes[number].rank;
  lane.begun++;
  const size_t index = pieces_.take();
  pieces_[index] = {number, 0, at, at};
  for (const Operand& from : step.from)
    if (is_remote(rank, from)) pieces_[index].unfinished++;
  if (pieces_[index].unfinished == 0) {
    if (at > now_)
      push(at, Kind::kWrite, index);
    else
      write(index);
    return;
  }
  for (const Operand& from : step.from)
    if (is_remote(rank, from))
      send(routes_.between(from.owner, rank), Purpose::kRead, static_cast<int32_t>(index), number,
           rank, at, at);
}

void SimulationRun::write(size_t index) {
  const int32_t number = pieces_[index].lane;
  LaneState& lane = lanes_[number];
  const Step& step = step_of(number);
  const int32_t rank = graph_.lanes[number].rank;
  lane.end_us = std::max({lane.end_us, now_, pieces_[index].tail_us});
  pieces_[index].unfinished = 1;  // this function itself
  const StepPlan& plan = plan_of(number);
  for (int32_t w = plan.sends; w < plan.end; w++) {
    const int32_t f = waits_[w].on;
    const double left = send(fifos_[f].route, Purpose::kFifo, f, number, fifos_[f].destination,
                             now_, pieces_[index].tail_us, waits_[w].share);
    lane.end_us = std::max(lane.end_us, left);
  }
  for (const Operand& to : step.to) {
    if (!is_remote(rank, to)) continue;
    pieces_[index].unfinished++;
    send(routes_.between(rank, to.owner), Purpose::kWrite, static_cast<int32_t>(index), number,
         to.owner, now_, pieces_[index].tail_us);
  }
  finish_part(index);
}

bool SimulationRun::writes(int32_t lane) const {
  const int32_t rank = graph_.lanes[lane].rank;
  const auto& to = step_of(lane).to;
  return std::any_of(to.begin(), to.end(), [&](const Operand& o) {
    return o.kind == Operand::Kind::kPeer || is_remote(rank, o);
  });
}

void SimulationRun::finish_part(size_t index) {
  if (--pieces_[index].unfinished > 0) return;
  const int32_t number = pieces_[index].lane;
  LaneState& lane = lanes_[number];
  pieces_.give_back(index);
  if (lane.begun < lane.pieces) begin_piece(number, now_);
  if (++lane.ended == lane.pieces) push(lane.end_us, Kind::kStepEnd, static_cast<size_t>(number));
}

}  // namespace weft
