// See step_order.h.
#include "algorithms/synth/weave/step_order.h"

#include <algorithm>
#include <deque>

namespace weft {
namespace {

// Messages that may wait in a FIFO while the order is computed.
constexpr size_t kWaiting = 4;

class StepOrder {
 public:
  StepOrder(const Pieces& pieces, const WovenMessages& formed, const ChosenLanes& lanes,
            bool at_once)
      : pieces_(pieces),
        messages_(formed.messages),
        starts_(formed.starts),
        lanes_(lanes),
        at_once_(at_once) {
    plan_.fifos = formed.fifos;
  }

  WovenPlan run() {
    order_steps();
    return std::move(plan_);
  }

 private:
  // Runs the messages one step after the other, each at its time: a send at the time of its
  // transfer, a receive when the first child of the message is due. A message is received earlier
  // if its FIFO is full, or if a message behind it in the FIFO is due. So FIFOs of kWaiting
  // messages can keep the order.
  void order_steps() {
    plan_.lanes.resize(lanes_.count.size());
    for (size_t r = 0; r < plan_.lanes.size(); r++) plan_.lanes[r].resize(lanes_.count[r]);
    message_outs_.resize(messages_.size());
    start_outs_.resize(starts_.size());
    waiting_.resize(plan_.fifos.size());
    const size_t n = messages_.size();
    // Events of one time: receives, then starts, then sends.
    std::vector<std::vector<int32_t>> received(n), begun(n);
    for (size_t i = 0; i < n; i++) {
      const WovenMessage& m = messages_[i];
      if (m.fused)
        (m.own() ? start_outs_ : message_outs_)[static_cast<size_t>(m.parent)].push_back(
            static_cast<int32_t>(i));
      if (m.due >= 0) received[static_cast<size_t>(m.due)].push_back(static_cast<int32_t>(i));
    }
    for (size_t s = 0; s < starts_.size(); s++) {
      if (!start_outs_[s].empty())
        begun[static_cast<size_t>(start_outs_[s].front())].push_back(static_cast<int32_t>(s));
      else if (pieces_.needed(starts_[s].first, starts_[s].rank))
        begin(static_cast<int32_t>(s));
    }
    for (size_t i = 0; i < n; i++) {
      for (const int32_t m : received[i]) receive_up_to(m);
      for (const int32_t s : begun[i]) begin(s);
      if (!messages_[i].fused) {
        const WovenMessage& m = messages_[i];
        const auto fifo = static_cast<size_t>(m.fifo);
        auto& steps = lane(plan_.fifos[fifo].from, lanes_.out[fifo]);
        // A message to several ranks in sequence is one step.
        if (!steps.empty() && !steps.back().begins && steps.back().first == m.first &&
            steps.back().count == m.count)
          steps.back().outs.push_back(m.fifo);
        else
          steps.push_back({m.first, m.count, -1, false, position_++, {m.fifo}});
        arrive({static_cast<int32_t>(i)});
      }
    }
    for (auto& lanes : plan_.lanes)
      lanes.erase(
          std::remove_if(lanes.begin(), lanes.end(), [](const auto& lane) { return lane.empty(); }),
          lanes.end());
  }

  std::vector<WovenStep>& lane(int32_t rank, int32_t number) {
    return plan_.lanes[static_cast<size_t>(rank)][static_cast<size_t>(number)];
  }

  // The messages that one step has sent. All of them enter their FIFOs before any is received. A
  // received message can send more through the same FIFOs, and those come after them.
  void arrive(const std::vector<int32_t>& messages) {
    for (const int32_t m : messages)
      waiting_[static_cast<size_t>(messages_[static_cast<size_t>(m)].fifo)].push_back(m);
    for (const int32_t m : messages) settle(m);
  }

  // A message that no child waits for is received at once. In lanes of ports all are, for the
  // order.
  void settle(int32_t message) {
    const auto& waiting =
        waiting_[static_cast<size_t>(messages_[static_cast<size_t>(message)].fifo)];
    if (at_once_ || messages_[static_cast<size_t>(message)].due < 0) receive_up_to(message);
    // The recursion is as deep as the chain of full FIFOs, which is short.
    while (waiting.size() > kWaiting) receive(waiting.front());
  }

  void receive_up_to(int32_t message) {
    const auto& waiting =
        waiting_[static_cast<size_t>(messages_[static_cast<size_t>(message)].fifo)];
    while (std::find(waiting.begin(), waiting.end(), message) != waiting.end())
      receive(waiting.front());
  }

  void receive(int32_t message) {
    const WovenMessage& m = messages_[static_cast<size_t>(message)];
    const auto fifo = static_cast<size_t>(m.fifo);
    waiting_[fifo].pop_front();
    emit({m.first, m.count, m.fifo, true, 0, {}}, plan_.fifos[fifo].to, lanes_.in[fifo],
         message_outs_[static_cast<size_t>(message)]);
  }

  void begin(int32_t start) {
    const WovenStart& s = starts_[static_cast<size_t>(start)];
    emit({s.first, s.count, -1, true, 0, {}}, s.rank, s.lane,
         start_outs_[static_cast<size_t>(start)]);
  }

  void emit(WovenStep step, int32_t rank, int32_t number, const std::vector<int32_t>& outs) {
    for (const int32_t m : outs) step.outs.push_back(messages_[static_cast<size_t>(m)].fifo);
    step.position = position_++;
    lane(rank, number).push_back(std::move(step));
    arrive(outs);
  }

  const Pieces& pieces_;
  const std::vector<WovenMessage>& messages_;
  const std::vector<WovenStart>& starts_;
  const ChosenLanes& lanes_;
  const bool at_once_;
  WovenPlan plan_;
  std::vector<std::vector<int32_t>> message_outs_,
      start_outs_;                            // messages that the same step sends
  std::vector<std::deque<int32_t>> waiting_;  // per FIFO, messages
  int64_t position_ = 0;
};

}  // namespace

WovenPlan order_steps(const Pieces& pieces, const WovenMessages& formed, const ChosenLanes& lanes,
                      bool at_once) {
  return StepOrder(pieces, formed, lanes, at_once).run();
}

}  // namespace weft
