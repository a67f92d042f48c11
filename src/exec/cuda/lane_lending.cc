// See lane_lending.h.
#include "src/exec/cuda/lane_lending.h"

#include <algorithm>

#include "src/schedule/schedule_graph.h"

namespace weft::cuda {
namespace {

class Writes {
 public:
  Writes(const ScheduleGraph& g, int rank)
      : g_(g),
        rank_(rank),
        first_(g.first_place(rank)),
        writers_(static_cast<size_t>(g.first_place(rank + 1) - first_)) {
    for (int32_t s = g.first_step(rank); s < g.first_step(rank + 1); s++) {
      const Step& step = *g.steps[static_cast<size_t>(s)];
      for (const Operand& to : step.to)
        for (int c = 0; c < step.count && to.kind == Operand::Kind::kLocal; c++)
          note(place(to, c), s);  // also a copy in place, which writes what is there
    }
  }

  // Whether a step's operand stays as it is when the step has run.
  bool stays(const Operand& operand, int32_t step) const {
    const Writer& writer = writers_[static_cast<size_t>(place(operand, 0))];
    if (writer.times == 0) return true;
    if (writer.times > 1) return false;
    // The order of lanes is enough to know that it was written before. Nobody reads an output that
    // nobody has written, but in place that may be an input.
    const auto lane = [&](int32_t s) { return g_.step_lane[static_cast<size_t>(s)]; };
    return !g_.in_place || (lane(writer.step) == lane(step) && writer.step <= step);
  }

 private:
  struct Writer {
    int times = 0;
    int32_t step = 0;
  };
  int32_t place(const Operand& operand, int c) const {
    return g_.place(rank_, operand.buffer, operand.index + c) - first_;
  }
  void note(int32_t place, int32_t step) {
    Writer& writer = writers_[static_cast<size_t>(place)];
    writer.times++;
    writer.step = step;
  }

  const ScheduleGraph& g_;
  const int rank_;
  const int32_t first_;
  std::vector<Writer> writers_;  // by place
};

bool is_coded(const Operand& operand) { return operand.codec != 0; }

}  // namespace

std::vector<bool> steps_that_lend(const VerifiedSchedule& verified, int rank) {
  const ScheduleGraph& g = verified.graph();
  std::vector<bool> lends(static_cast<size_t>(g.first_step(rank + 1) - g.first_step(rank)));
  if (g.has_remote()) return lends;  // others may write to this rank's memory
  const Writes writes(g, rank);
  for (size_t i = 0; i < lends.size(); i++) {
    const int32_t s = g.first_step(rank) + static_cast<int32_t>(i);
    const Step& step = *g.steps[static_cast<size_t>(s)];
    const StepId id = g.id(s);
    if (step.count != 1 || step.from.size() != 1 || is_coded(step.from[0]) ||
        std::any_of(step.to.begin(), step.to.end(), is_coded) ||
        verified.facts(id.rank, id.lane, id.step).completes)
      continue;
    const Operand* source = &step.from[0];
    // What is received may go straight to the first place where the step puts it (straight.h).
    if (source->kind == Operand::Kind::kPeer)
      for (auto to = step.to.rbegin(); to != step.to.rend(); to++)
        if (to->kind == Operand::Kind::kLocal && to->buffer != Buffer::kInput) source = &*to;
    lends[i] = source->kind == Operand::Kind::kLocal && source->buffer != Buffer::kScratch &&
               writes.stays(*source, s);
  }
  return lends;
}

}  // namespace weft::cuda
