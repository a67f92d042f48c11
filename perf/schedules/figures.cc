// See figures.h.
#include "perf/schedules/figures.h"

#include <algorithm>
#include <vector>

#include "src/schedule/schedule_graph.h"

namespace weft::perf::schedules {
namespace {

bool has_operands(const Step& step) { return !step.from.empty() || !step.to.empty(); }

// The steps that a step follows, passed to `visit`.
template <typename Visit>
void for_predecessors(const ScheduleGraph& graph, int32_t number, Visit visit) {
  const StepId id = graph.id(number);
  const auto n = static_cast<size_t>(number);
  const Step& step = *graph.steps[n];
  if (id.step > 0) visit(number - 1);
  for (const Dependency& d : step.after) visit(graph.step_number(id.rank, d.lane, d.step));
  for (size_t i = 0; i < step.from.size(); i++) {
    const auto operand = static_cast<size_t>(graph.first_operand[n]) + i;
    const int32_t fifo = graph.operand_fifo[operand];
    if (fifo < 0) continue;
    visit(graph.senders[static_cast<size_t>(graph.fifos[static_cast<size_t>(fifo)].first_message +
                                            graph.operand_message[operand])]);
  }
}

size_t longest_chain(const ScheduleGraph& graph) {
  const size_t steps = graph.steps.size();
  std::vector<std::vector<int32_t>> successors(steps);
  std::vector<size_t> waits(steps, 0), depth(steps, 0);
  for (size_t s = 0; s < steps; s++)
    for_predecessors(graph, static_cast<int32_t>(s), [&](int32_t before) {
      successors[static_cast<size_t>(before)].push_back(static_cast<int32_t>(s));
      waits[s]++;
    });
  std::vector<size_t> ready;
  for (size_t s = 0; s < steps; s++)
    if (waits[s] == 0) ready.push_back(s);
  size_t longest = 0;
  while (!ready.empty()) {
    const size_t s = ready.back();
    ready.pop_back();
    depth[s] += has_operands(*graph.steps[s]) ? 1 : 0;
    longest = std::max(longest, depth[s]);
    for (const int32_t next : successors[s]) {
      const auto n = static_cast<size_t>(next);
      depth[n] = std::max(depth[n], depth[s]);
      if (--waits[n] == 0) ready.push_back(n);
    }
  }
  return longest;
}

}  // namespace

Figures figures_of(const VerifiedSchedule& verified) {
  Figures figures;
  for (const RankSchedule& rank : verified.schedule().ranks) {
    figures.lanes = std::max(figures.lanes, rank.lanes.size());
    for (const Lane& lane : rank.lanes)
      for (const Step& step : lane.steps) {
        const auto chunks = static_cast<uint64_t>(step.count);
        if (has_operands(step)) figures.steps++;
        figures.moved_chunks += chunks * (step.from.size() + step.to.size());
        for (const auto* operands : {&step.from, &step.to})
          for (const Operand& o : *operands)
            if (o.kind == Operand::Kind::kPeer) figures.message_chunks += chunks;
      }
  }
  figures.chain = longest_chain(verified.graph());
  return figures;
}

}  // namespace weft::perf::schedules
