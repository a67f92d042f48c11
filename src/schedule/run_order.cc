// Runs lanes until they block; whatever they wait for wakes them. Which lane goes first does not
// matter. A lane never chooses between FIFOs, so either every order completes or none does.
#include "src/schedule/run_order.h"

#include <algorithm>
#include <limits>

#include "src/base/error.h"

namespace weft {
namespace {

constexpr int kUnlimited = std::numeric_limits<int>::max();

class Run {
 public:
  Run(const ScheduleGraph& graph, int depth)
      : g_(graph),
        depth_(depth),
        position_(graph.lanes.size(), 0),
        sent_(graph.fifos.size(), 0),
        received_(graph.fifos.size(), 0),
        waits_(graph.lanes.size()),
        waiters_(graph.lanes.size()) {
    order_.reserve(graph.steps.size());
  }

  // True when every step ran.
  bool complete() {
    for (size_t l = g_.lanes.size(); l-- > 0;) ready_.push_back(static_cast<int32_t>(l));
    while (!ready_.empty()) {
      const int32_t lane = ready_.back();
      ready_.pop_back();
      waits_[static_cast<size_t>(lane)] = {};
      advance(lane);
    }
    return order_.size() == g_.steps.size();
  }

  std::vector<int32_t>& order() { return order_; }

  // After an incomplete run: the step that blocks others, and why.
  std::string culprit() const {
    std::vector<bool> seen(g_.lanes.size());
    int32_t lane = 0;
    while (finished(lane)) lane++;
    // Follow the waits from lane to lane, until a wait that never ends or a cycle.
    for (;;) {
      seen[static_cast<size_t>(lane)] = true;
      const int32_t next = awaited(lane);
      if (next < 0 || finished(next)) break;
      if (seen[static_cast<size_t>(next)]) {
        lane = first_of_circle(next);
        break;
      }
      lane = next;
    }
    return why(lane);
  }

 private:
  enum class Cause : uint8_t { kNone, kStep, kMessage, kRoom };
  struct Wait {
    Cause cause = Cause::kNone;
    int32_t what = -1;  // a lane or a FIFO
    int32_t step = -1;
  };

  bool finished(int32_t lane) const {
    return position_[static_cast<size_t>(lane)] == g_.lanes[static_cast<size_t>(lane)].size;
  }

  void advance(int32_t number) {
    const auto& lane = g_.lanes[static_cast<size_t>(number)];
    int32_t& position = position_[static_cast<size_t>(number)];
    const int32_t before = position;
    while (position < lane.size) {
      const int32_t step = lane.first_step + position;
      if (!can_run(number, lane.rank, step)) break;
      run(step);
      position++;
    }
    if (position == before) return;
    auto& waiting = waiters_[static_cast<size_t>(number)];
    size_t left = 0;
    for (const int32_t waiter : waiting) {
      if (waits_[static_cast<size_t>(waiter)].step < position) {
        ready_.push_back(waiter);
      } else {
        waiting[left++] = waiter;
      }
    }
    waiting.resize(left);
  }

  bool can_run(int32_t lane, int32_t rank, int32_t step_number) {
    const auto n = static_cast<size_t>(step_number);
    const Step& step = *g_.steps[n];
    Wait& wait = waits_[static_cast<size_t>(lane)];
    const int32_t first = g_.first_lane[static_cast<size_t>(rank)];
    for (const Dependency& d : step.after) {
      if (position_[static_cast<size_t>(first + d.lane)] > d.step) continue;
      wait = {Cause::kStep, first + d.lane, d.step};
      if (first + d.lane != lane) waiters_[static_cast<size_t>(first + d.lane)].push_back(lane);
      return false;
    }
    const auto operand = static_cast<size_t>(g_.first_operand[n]);
    const size_t sources = step.from.size(), all = sources + step.to.size();
    for (size_t i = 0; i < all; i++) {
      const int32_t fifo = g_.operand_fifo[operand + i];
      if (fifo < 0) continue;
      const auto f = static_cast<size_t>(fifo);
      const int32_t message = g_.operand_message[operand + i];
      const bool blocked = i < sources ? sent_[f] <= message : message - received_[f] >= depth_;
      if (!blocked) continue;
      wait = {i < sources ? Cause::kMessage : Cause::kRoom, fifo, -1};
      return false;
    }
    return true;
  }

  void run(int32_t step_number) {
    const auto n = static_cast<size_t>(step_number);
    const Step& step = *g_.steps[n];
    order_.push_back(step_number);
    const auto operand = static_cast<size_t>(g_.first_operand[n]);
    const size_t sources = step.from.size(), all = sources + step.to.size();
    for (size_t i = 0; i < all; i++) {
      const int32_t fifo = g_.operand_fifo[operand + i];
      if (fifo < 0) continue;
      const auto f = static_cast<size_t>(fifo);
      (i < sources ? received_ : sent_)[f]++;
      wake(i < sources ? g_.fifos[f].producer_lane : g_.fifos[f].consumer_lane,
           i < sources ? Cause::kRoom : Cause::kMessage, fifo);
    }
  }

  void wake(int32_t lane, Cause cause, int32_t fifo) {
    if (lane < 0) return;
    Wait& wait = waits_[static_cast<size_t>(lane)];
    if (wait.cause != cause || wait.what != fifo) return;
    wait = {};
    ready_.push_back(lane);
  }

  int32_t awaited(int32_t lane) const {
    const Wait& wait = waits_[static_cast<size_t>(lane)];
    if (wait.cause == Cause::kStep) return wait.what;
    const auto& fifo = g_.fifos[static_cast<size_t>(wait.what)];
    return wait.cause == Cause::kMessage ? fifo.producer_lane : fifo.consumer_lane;
  }

  int32_t first_of_circle(int32_t lane) const {
    int32_t first = lane;
    for (int32_t l = awaited(lane); l != lane; l = awaited(l)) first = std::min(first, l);
    return first;
  }

  std::string why(int32_t number) const {
    const auto& lane = g_.lanes[static_cast<size_t>(number)];
    const int32_t step = lane.first_step + position_[static_cast<size_t>(number)];
    const Wait& wait = waits_[static_cast<size_t>(number)];
    std::string reason;
    if (wait.cause == Cause::kStep) {
      reason = fmt::format("it waits for lane {} step {}",
                           g_.lanes[static_cast<size_t>(wait.what)].lane, wait.step);
    } else {
      const auto& fifo = g_.fifos[static_cast<size_t>(wait.what)];
      reason = wait.cause == Cause::kMessage
                   ? fmt::format("it waits for a message from rank {}", fifo.source)
                   : fmt::format("the FIFO to rank {} stays full", fifo.destination);
      if (fifo.channel != 0) reason += fmt::format(" on channel {}", fifo.channel);
    }
    return fmt::format("{} never runs: {}", g_.describe_chunk(step, 0), reason);
  }

  const ScheduleGraph& g_;
  const int depth_;
  std::vector<int32_t> position_, sent_, received_, ready_, order_;
  std::vector<Wait> waits_;
  std::vector<std::vector<int32_t>> waiters_;
};

bool runs(const ScheduleGraph& graph, int depth) { return Run(graph, depth).complete(); }

}  // namespace

std::vector<int32_t> run_order(const ScheduleGraph& graph, int fifo_depth) {
  Run run(graph, fifo_depth);
  if (run.complete()) return std::move(run.order());
  const int needed = least_fifo_depth(graph);
  if (needed == 0) {
    // More room would not help: report the reason that holds at any depth.
    Run unlimited(graph, kUnlimited);
    unlimited.complete();
    fail(ncclInvalidUsage, "{} (at any FIFO depth)", unlimited.culprit());
  }
  fail(ncclInvalidUsage, "{} (FIFO depth {}; depth {} works)", run.culprit(), fifo_depth, needed);
}

int least_fifo_depth(const ScheduleGraph& graph) {
  if (!runs(graph, kUnlimited)) return 0;
  int32_t most = 1;
  for (const auto& fifo : graph.fifos) most = std::max(most, fifo.messages());
  // A FIFO that holds all its messages is never full. A small depth nearly always works.
  int works = 1;
  while (works < most && !runs(graph, works)) works *= 2;
  works = std::min(works, most);
  int fails = works / 2;
  while (works - fails > 1) {
    const int middle = fails + (works - fails) / 2;
    (runs(graph, middle) ? works : fails) = middle;
  }
  return works;
}

}  // namespace weft
