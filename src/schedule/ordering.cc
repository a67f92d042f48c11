// The accesses of one lane to a chunk are ordered. So a write needs only one check per other lane:
// against that lane's first access that is not before the write.
#include "src/schedule/ordering.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/schedule/accesses.h"
#include "src/schedule/happens_before.h"

namespace weft {
namespace {

class Races {
 public:
  Races(const ScheduleGraph& graph, const std::vector<int32_t>& order)
      : g_(graph), before_(graph, order) {}

  void check() {
    if (g_.has_remote()) {
      check_presence();
      check_accesses(Accesses(g_, 0, static_cast<int32_t>(g_.steps.size()), 0, g_.places()));
      return;
    }
    // Each rank touches only its own memory.
    for (int r = 0; r < static_cast<int>(g_.schedule.ranks.size()); r++) {
      const auto lane = static_cast<size_t>(r);
      if (g_.first_lane[lane + 1] - g_.first_lane[lane] < 2) continue;
      check_accesses(Accesses(g_, g_.first_step(r), g_.first_step(r + 1), g_.first_place(r),
                              g_.first_place(r + 1)));
      before_.forget(r);
    }
  }

 private:
  int32_t lane_of(const Access& access) const {
    return g_.step_lane[static_cast<size_t>(access.step)];
  }

  void check_accesses(const Accesses& accesses) {
    std::vector<const Access*> lanes;  // the first access of each lane
    for (size_t place = 0; place < accesses.places(); place++) {
      const Access *first = accesses.begin(place), *last = accesses.end(place);
      if (first == last || lane_of(*first) == lane_of(*(last - 1))) continue;
      if (std::none_of(first, last, [](const Access& a) { return a.write; })) continue;
      lanes.clear();
      for (const Access* a = first; a != last; a++)
        if (a == first || lane_of(*a) != lane_of(*(a - 1))) lanes.push_back(a);
      lanes.push_back(last);
      for (size_t mine = 0; mine + 1 < lanes.size(); mine++)
        for (const Access* a = lanes[mine]; a != lanes[mine + 1]; a++) {
          if (!a->write || (a != lanes[mine] && (a - 1)->write && (a - 1)->step == a->step))
            continue;
          for (size_t other = 0; other + 1 < lanes.size(); other++)
            if (other != mine) check_write(*a, lanes[other], lanes[other + 1]);
        }
    }
  }

  // Checks a write against the accesses of another lane.
  void check_write(const Access& write, const Access* first, const Access* last) {
    const Access* next = std::partition_point(
        first, last, [&](const Access& a) { return before_(a.step, write.step); });
    if (next == last || before_(write.step, next->step)) return;
    const int32_t one = std::min(write.step, next->step), two = std::max(write.step, next->step);
    fail(ncclInvalidUsage, "{} and {} touch the same chunk ({}) and nothing orders them",
         describe(g_.id(one)), describe(g_.id(two)), shared_chunk(one, two));
  }

  // The chunk that both steps touch, as errors name it.
  std::string shared_chunk(int32_t one, int32_t two) const {
    std::vector<std::pair<int32_t, bool>> touched;
    for_accesses(g_, one, [&](int32_t place, Access a) { touched.emplace_back(place, a.write); });
    int32_t shared = -1;
    for_accesses(g_, two, [&](int32_t place, Access a) {
      for (const auto& [p, write] : touched)
        if (p == place && (write || a.write) && shared < 0) shared = place;
    });
    return g_.describe_place(shared);
  }

  // Other ranks may touch a rank's memory only while the rank is inside the call: after one of its
  // steps, and before the last step of one of its lanes.
  void check_presence() {
    for (size_t n = 0; n < g_.steps.size(); n++) {
      for (const Operand& from : g_.steps[n]->from) check_present(static_cast<int32_t>(n), from);
      for (const Operand& to : g_.steps[n]->to) check_present(static_cast<int32_t>(n), to);
    }
  }

  void check_present(int32_t number, const Operand& operand) {
    if (operand.kind != Operand::Kind::kRemote) return;
    bool entered = false, remains = false;
    const auto owner = static_cast<size_t>(operand.owner);
    for (int32_t l = g_.first_lane[owner]; l < g_.first_lane[owner + 1]; l++) {
      const auto& lane = g_.lanes[static_cast<size_t>(l)];
      if (lane.size == 0) continue;
      entered = entered || before_(lane.first_step, number);
      remains = remains || before_(number, lane.first_step + lane.size - 1);
    }
    if (!entered || !remains)
      fail(ncclInvalidUsage, "{} touches memory of rank {}, which may {} the call {}",
           describe(g_.id(number)), operand.owner, entered ? "have left" : "not have entered",
           entered ? "already" : "yet");
  }

  const ScheduleGraph& g_;
  HappensBefore before_;
};

// The operand that receivers would read in place: the local destination if there is one, else the
// source if it is the only one and local. nullptr: none.
const Operand* lent_operand(const Step& step) {
  const Operand* lent = nullptr;
  bool sends = false;
  for (const Operand& to : step.to) {
    if (to.kind == Operand::Kind::kPeer) sends = true;
    if (to.kind == Operand::Kind::kLocal && lent == nullptr) lent = &to;
  }
  if (!sends || step.count == 0) return nullptr;
  if (lent == nullptr && step.from.size() == 1 && step.from[0].kind == Operand::Kind::kLocal)
    lent = &step.from[0];
  return lent;
}

}  // namespace

void check_ordering(const ScheduleGraph& graph, const std::vector<int32_t>& order) {
  Races(graph, order).check();
}

std::vector<bool> lendable_steps(const ScheduleGraph& g, const std::vector<int32_t>& order,
                                 int rank) {
  const int32_t first = g.first_step(rank), end = g.first_step(rank + 1);
  std::vector<bool> lendable(static_cast<size_t>(end - first));
  HappensBefore before(g, order);
  // With peer memory access, any rank may write here.
  const bool all = g.has_remote();
  const Accesses accesses(g, all ? 0 : first, all ? static_cast<int32_t>(g.steps.size()) : end,
                          g.first_place(rank), g.first_place(rank + 1));
  for (int32_t n = first; n < end; n++) {
    const Step& step = *g.steps[static_cast<size_t>(n)];
    const Operand* lent = lent_operand(step);
    bool safe = lent != nullptr;
    for (int c = 0; safe && c < step.count; c++) {
      const size_t place = accesses.at(g.place(rank, lent->buffer, lent->index + c));
      for (const Access* a = accesses.begin(place); safe && a != accesses.end(place); a++) {
        if (!a->write || a->step == n || before(a->step, n)) continue;
        for (size_t i = 0; safe && i < step.to.size(); i++)
          if (const int32_t receiver = g.receiver(n, i); receiver >= 0)
            safe = before(receiver, a->step);
      }
    }
    lendable[static_cast<size_t>(n - first)] = safe;
  }
  return lendable;
}

}  // namespace weft
