// See widened.h.
#include "algorithms/generators/widened.h"

#include <map>
#include <tuple>

namespace weft {
namespace {

constexpr uint8_t kWide = 1;  // the only codec

// The messages of a FIFO in order: whether each carries a partial sum.
using Fifo = std::tuple<int, int, int>;  // from, to, channel
using Messages = std::map<Fifo, std::vector<bool>>;

class Widener {
 public:
  explicit Widener(const VerifiedSchedule& proved)
      : proved_(proved), schedule_(proved.schedule()) {}

  // False: a partial sum stays in memory.
  bool widen() {
    // A message that is passed on is known one round later.
    for (bool changed = true; changed;) {
      const Messages before = wide_;
      wide_.clear();
      if (!each_step(before)) return false;
      changed = wide_ != before;
    }
    return true;
  }
  const Schedule& schedule() const { return schedule_; }

 private:
  bool each_step(const Messages& before) {
    std::map<Fifo, size_t> received;
    for (int r = 0; r < static_cast<int>(schedule_.ranks.size()); r++) {
      auto& lanes = schedule_.ranks[static_cast<size_t>(r)].lanes;
      for (size_t l = 0; l < lanes.size(); l++)
        for (size_t s = 0; s < lanes[l].steps.size(); s++)
          if (!step(r, lanes[l].steps[s],
                    proved_.facts(r, static_cast<int>(l), static_cast<int>(s)).completes, before,
                    received))
            return false;
    }
    return true;
  }

  bool step(int r, Step& step, bool completes, const Messages& before,
            std::map<Fifo, size_t>& received) {
    bool partial = step.from.size() > 1;
    for (Operand& from : step.from) {
      if (from.kind == Operand::Kind::kRemote) return false;
      if (from.kind != Operand::Kind::kPeer || step.count == 0) continue;
      const Fifo fifo{from.index, r, from.channel};
      const auto known = before.find(fifo);
      const size_t k = received[fifo]++;
      const bool wide = known != before.end() && k < known->second.size() && known->second[k];
      from.codec = wide ? kWide : uint8_t{0};
      partial = partial || wide;
    }
    partial = partial && !completes;
    for (Operand& to : step.to) {
      if (to.kind == Operand::Kind::kRemote || (partial && to.kind == Operand::Kind::kLocal))
        return false;
      if (to.kind != Operand::Kind::kPeer || step.count == 0) continue;
      wide_[{r, to.index, to.channel}].push_back(partial);
      to.codec = partial ? kWide : uint8_t{0};
    }
    return true;
  }

  const VerifiedSchedule& proved_;
  Schedule schedule_;
  Messages wide_;
};

}  // namespace

bool has_partial_sums(const VerifiedSchedule& proved) {
  const Schedule& schedule = proved.schedule();
  if (!schedule.collective.reduces()) return false;
  for (size_t r = 0; r < schedule.ranks.size(); r++)
    for (size_t l = 0; l < schedule.ranks[r].lanes.size(); l++)
      for (size_t s = 0; s < schedule.ranks[r].lanes[l].steps.size(); s++)
        if (schedule.ranks[r].lanes[l].steps[s].from.size() > 1 &&
            !proved.facts(static_cast<int>(r), static_cast<int>(l), static_cast<int>(s)).completes)
          return true;
  return false;
}

std::optional<Schedule> widened(const VerifiedSchedule& proved) {
  if (!proved.schedule().codecs.empty()) return std::nullopt;
  Widener widener(proved);
  if (!widener.widen()) return std::nullopt;
  Schedule schedule = widener.schedule();
  schedule.name += "+widen";
  schedule.codecs = {CodecSpec{Codec::kWiden}};
  return schedule;
}

}  // namespace weft
