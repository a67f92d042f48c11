// The event loop, and how messages cross links.
#include "src/simulator/simulation_run.h"

#include <algorithm>

namespace weft {

Simulation SimulationRun::run() {
  for (size_t l = 0; l < lanes_.size(); l++) try_begin(static_cast<int32_t>(l), -1);
  while (!events_.empty() && given_up_us_ == 0) {
    const Event event = events_.pop();
    now_ = event.at;
    const auto index = static_cast<size_t>(event.subject & ((1u << 30) - 1));
    switch (static_cast<Kind>(event.subject >> 30)) {
      case Kind::kMessage:
        if (messages_[index].hop < messages_[index].hops)
          cross(index);
        else
          arrive(index);
        break;
      case Kind::kStepEnd:
        end_step(static_cast<int32_t>(index));
        break;
      case Kind::kWrite:
        write(index);
        break;
    }
  }
  if (given_up_us_ == 0) check_finished();
  return result();
}

double SimulationRun::send(std::span<const int32_t> route, Purpose purpose, int32_t target,
                           int32_t lane, int32_t destination, double at, double tail,
                           double share) {
  const size_t index = messages_.take();
  messages_[index] = {route.data(),
                      static_cast<int32_t>(route.size()),
                      0,
                      piece_bytes(lane) * share,
                      tail,
                      target,
                      span_number(lane),
                      destination,
                      purpose};
  if (at <= now_) return cross(index);
  push(at, Kind::kMessage, index);
  return at;
}

double SimulationRun::cross(size_t index) {
  Message& message = messages_[index];
  const int32_t l = message.route[message.hop++];
  const auto link = static_cast<size_t>(l);
  LinkState& state = links_[link];
  const double busy = message.bytes * state.us_per_byte;
  const double begin = std::max(now_, state.free_us), end = begin + busy;
  const double left = std::max(end, message.tail_us), us = state.us;
  state.free_us = end;
  message.tail_us = left + us;
  state.busy_us += busy;
  state.bytes += message.bytes;
  if (options_.record) transfers_.push_back({l, message.span, message.destination, begin, end});
  if (message.hop < message.hops) {
    push(begin + us, Kind::kMessage, index);
  } else if (message.purpose == Purpose::kRead) {
    Piece& piece = pieces_[message.target];
    piece.head_us = std::max(piece.head_us, begin + us);
    piece.tail_us = std::max(piece.tail_us, message.tail_us);
    messages_.give_back(index);
    if (--piece.unfinished == 0)
      push(std::max(piece.head_us, writes(piece.lane) ? 0 : piece.tail_us), Kind::kWrite,
           static_cast<size_t>(message.target));
  } else {
    push(message.tail_us, Kind::kMessage, index);
  }
  return left;
}

void SimulationRun::arrive(size_t index) {
  const Message message = messages_[index];
  messages_.give_back(index);
  if (message.purpose == Purpose::kWrite) {
    const auto piece = static_cast<size_t>(message.target);
    LaneState& lane = lanes_[pieces_[piece].lane];
    lane.end_us = std::max(lane.end_us, now_);
    finish_part(piece);
    return;
  }
  FifoState& fifo = fifos_[message.target];
  fifo.arrived++;
  wake(fifo.consumer_lane, message.target, message.span);
}

}  // namespace weft
