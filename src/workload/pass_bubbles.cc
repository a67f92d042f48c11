// Passes that fill the bubbles of pipelines: with other work (PipeFisher), and by finer grains
// (TeraPipe).
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "src/workload/list_schedule.h"
#include "src/workload/passes.h"
#include "src/workload/rewrite.h"
#include "src/workload/token_slices.h"

namespace weft::workload {
namespace {

// The compute of one sequence on one stage in forward, which slices cut: time and floor.
struct StageWork {
  double us = 0, floor_us = 0, context_us = 0, split_us = 0;
};

StageWork slowest_stage(const Graph& graph) {
  std::map<std::pair<int, int>, StageWork> work;  // per place and microbatch
  for (const Op& op : graph.ops) {
    if (op.collective || op.phase != Phase::kForward || op.axis.empty()) continue;
    StageWork& mine = work[{op.place, op.microbatch}];
    mine.us += op.us;
    mine.floor_us += op.floor_us;
    mine.split_us += graph.split_us;
    mine.context_us += op.us * op.context;
  }
  StageWork most;
  for (const auto& [key, mine] : work)
    if (mine.us > most.us) most = mine;
  return most;
}

int stages_of(const Graph& graph) {
  std::set<int> places;
  for (const Op& op : graph.ops)
    if (!op.collective && op.phase == Phase::kForward) places.insert(op.place);
  return static_cast<int>(places.size());
}

int sequences_of(const Graph& graph) {
  std::set<int> microbatches;
  for (const Op& op : graph.ops)
    if (!op.collective && op.phase == Phase::kForward) microbatches.insert(op.microbatch);
  return std::max(1, static_cast<int>(microbatches.size()));
}

Graph sliced(const Graph& graph, const std::vector<double>& cuts) {
  Cutting cutting;
  cutting.one_call = false;
  cutting.causal = true;
  std::map<std::tuple<int, int, bool>, int> blocks;
  const Actors actors = actors_of(graph);
  for (const Op& op : graph.ops) {
    const bool backward = op.phase == Phase::kInputGradient || op.phase == Phase::kWeightGradient;
    const bool sliceable = !op.axis.empty() && (backward || op.phase == Phase::kForward);
    cutting.cuts.push_back(sliceable ? cuts : std::vector<double>{});
    // A transfer to the next stage belongs to the stage that sends: forward goes up, backward down.
    const std::vector<int>& mine = actors.of(op);
    const int stage = backward ? mine.back() : mine.front();
    const std::tuple key{stage, op.microbatch, backward};
    cutting.blocks.push_back(
        sliceable ? blocks.emplace(key, static_cast<int>(blocks.size())).first->second : -1);
  }
  return cut(graph, cutting);
}

}  // namespace

void pass_fisher(Search& search) {
  const auto extra = [](const Op& op) { return op.phase == Phase::kExtra; };
  const auto& ops = search.best().ops;
  if (std::none_of(ops.begin(), ops.end(), extra)) {
    search.note("fisher: there are no operations of phase 'extra'");
    return;
  }
  for (const double overrun : {1.0, 1.5, 1e9})
    search.offer(fill_gaps(search.best(), search.costs(), {extra, overrun}),
                 overrun > 2 ? std::string("extra work whenever nothing else can run")
                             : fmt::format("extra work in gaps, up to {} times as long", overrun));
}

void pass_terapipe(Search& search) {
  const int stages = stages_of(search.best());
  const StageWork work = slowest_stage(search.best());
  if (stages < 2 || work.us <= 0) {
    search.note("terapipe: there is no pipeline whose compute has an axis");
    return;
  }
  const Graph whole = search.best();
  const auto time = [&](double low, double high) {
    const double linear = (work.us - work.context_us) * (high - low);
    return std::max(linear + work.context_us * (high * high - low * low), work.floor_us) +
           work.split_us;
  };
  constexpr int kGrains = 256;
  const std::vector<double> best = best_slices(kGrains, stages, sequences_of(whole), time);
  if (!best.empty())
    search.offer(sliced(whole, best),
                 fmt::format("{} slices of tokens, by dynamic programming", best.size() + 1));
  for (const int parts : {2, 4, 8, 16, 32})
    search.offer(sliced(whole, equal_cuts(parts)), fmt::format("{} equal slices of tokens", parts));
}

}  // namespace weft::workload
