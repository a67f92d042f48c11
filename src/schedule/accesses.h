// Which steps touch which chunks of memory.
#pragma once

#include <cstdint>
#include <vector>

#include "src/schedule/schedule_graph.h"

namespace weft {

struct Access {
  int32_t step = 0;
  bool write = false;
};

// In an in-place call a copy from input to output may copy a chunk onto itself. It writes nothing.
// In a reduction it may write, because a pre-multiplier applies on the way.
inline bool stays(const ScheduleGraph& g, int rank, const Step& step, const Operand& to) {
  return !g.schedule.collective.reduces() && step.from.size() == 1 && step.from[0].codec == 0 &&
         to.codec == 0 && step.from[0].kind == Operand::Kind::kLocal &&
         to.kind == Operand::Kind::kLocal &&
         g.place(rank, to.buffer, to.index) ==
             g.place(rank, step.from[0].buffer, step.from[0].index);
}

// Calls visit(place, access) for everything that a step touches.
template <typename Visit>
void for_accesses(const ScheduleGraph& g, int32_t number, Visit visit) {
  const Step& step = *g.steps[static_cast<size_t>(number)];
  const int rank = g.lanes[static_cast<size_t>(g.step_lane[static_cast<size_t>(number)])].rank;
  for (const bool write : {false, true})
    for (const Operand& operand : write ? step.to : step.from) {
      if (operand.kind == Operand::Kind::kPeer || (write && stays(g, rank, step, operand)))
        continue;
      const int owner = ScheduleGraph::memory_owner(rank, operand);
      for (int c = 0; c < step.count; c++)
        visit(g.place(owner, operand.buffer, operand.index + c), Access{number, write});
    }
}

// The accesses of every place in a range, in order of step number.
class Accesses {
 public:
  Accesses(const ScheduleGraph& g, int32_t first_step, int32_t end_step, int32_t first_place,
           int32_t end_place)
      : first_place_(first_place), begin_(static_cast<size_t>(end_place - first_place) + 1, 0) {
    const auto for_all = [&](auto visit) {
      for (int32_t n = first_step; n < end_step; n++)
        for_accesses(g, n, [&](int32_t place, Access access) {
          if (place >= first_place && place < end_place)
            visit(static_cast<size_t>(place - first_place), access);
        });
    };
    for_all([&](size_t place, Access) { begin_[place + 1]++; });
    for (size_t p = 1; p < begin_.size(); p++) begin_[p] += begin_[p - 1];
    all_.resize(begin_.back());
    std::vector<size_t> next(begin_.begin(), begin_.end() - 1);
    for_all([&](size_t place, Access access) { all_[next[place]++] = access; });
  }

  size_t places() const { return begin_.size() - 1; }
  const Access* begin(size_t place) const { return all_.data() + begin_[place]; }
  const Access* end(size_t place) const { return all_.data() + begin_[place + 1]; }
  size_t at(int32_t place) const { return static_cast<size_t>(place - first_place_); }

 private:
  int32_t first_place_;
  std::vector<size_t> begin_;
  std::vector<Access> all_;
};

}  // namespace weft
