// See pipeline_order.h.
#include "src/workload/pipeline_order.h"

#include <algorithm>
#include <set>

namespace weft::workload {
namespace {

std::vector<Turn> turns_of_stage(int stage, int stages, int microbatches, bool gpipe) {
  std::vector<Turn> turns;
  const int ahead = gpipe ? microbatches : std::min(microbatches, stages - stage);
  for (int m = 0; m < ahead; m++) turns.push_back({stage, m, false});
  for (int m = 0; m < microbatches; m++) {
    turns.push_back({stage, m, true});
    if (m + ahead < microbatches) turns.push_back({stage, m + ahead, false});
  }
  return turns;
}

}  // namespace

std::vector<Turn> pipeline_turns(int stages, int microbatches, bool gpipe) {
  std::vector<std::vector<Turn>> turns;
  for (int stage = 0; stage < stages; stage++)
    turns.push_back(turns_of_stage(stage, stages, microbatches, gpipe));
  std::vector<size_t> at(turns.size(), 0);
  std::vector<Turn> order;
  std::set<Turn> done;
  const auto possible = [&](const Turn& turn) {
    const int needed = turn.backward ? turn.stage + 1 : turn.stage - 1;
    return needed < 0 || needed == stages ||
           done.count({needed, turn.microbatch, turn.backward}) > 0;
  };
  // A stage that must wait lets the others go on.
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t stage = 0; stage < turns.size(); stage++)
      for (; at[stage] < turns[stage].size() && possible(turns[stage][at[stage]]); at[stage]++) {
        order.push_back(turns[stage][at[stage]]);
        done.insert(order.back());
        moved = true;
      }
  }
  return order;
}

}  // namespace weft::workload
