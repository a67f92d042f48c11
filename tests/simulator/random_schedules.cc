// See random_schedules.h.
#include "tests/simulator/random_schedules.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "algorithms/generators/building.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

// Parent of every rank; the root is its own.
std::vector<int> random_tree(int n, int root, uint64_t seed) {
  std::vector<int> order(static_cast<size_t>(n)), parent(static_cast<size_t>(n), root);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[0], order[static_cast<size_t>(root)]);
  for (size_t i = 1; i < order.size(); i++) {
    std::swap(order[i], order[i + mix(seed, 2 * i) % (order.size() - i)]);
    parent[static_cast<size_t>(order[i])] = order[mix(seed, 2 * i + 1) % i];
  }
  return parent;
}

}  // namespace

Schedule random_forest(const Collective& c, int chunks, uint64_t seed) {
  const int n = c.nranks;
  const bool per_rank =
      c.kind == CollectiveKind::kAllGather || c.kind == CollectiveKind::kReduceScatter;
  const int trees = (per_rank ? n : 1) * chunks;
  Schedule s = blank("random forest", c, chunks, trees);
  for (int t = 0; t < trees; t++) {
    const int root = per_rank ? t / chunks : c.root;
    const std::vector<int> parent = random_tree(n, root, mix(seed, static_cast<uint64_t>(t)));
    for (int r = 0; r < n; r++) {
      Lane& lane = s.ranks[static_cast<size_t>(r)].lanes[static_cast<size_t>(t)];
      const Operand up = Operand::peer(parent[static_cast<size_t>(r)], t);
      Operands down;
      for (int q = 0; q < n; q++)
        if (q != root && parent[static_cast<size_t>(q)] == r) down.push_back(Operand::peer(q, t));
      // Chunk t of the gathered or scattered array is chunk t % chunks of one rank's part.
      if (c.reduces()) {
        down.push_back(Operand::input(t));
        add(lane, down, {r == root ? Operand::output(t % chunks) : up});
      } else {
        down.insert(down.begin(), Operand::output(t));
        add(lane, {r == root ? Operand::input(t % chunks) : up}, down);
      }
    }
  }
  return s;
}

namespace {

// The sum goes up each tree and down again.
Schedule random_all_reduce(const Collective& c, int chunks, uint64_t seed) {
  const int n = c.nranks;
  Schedule s = blank("random all_reduce", c, chunks, chunks);
  for (int t = 0; t < chunks; t++) {
    const auto root =
        static_cast<int>(mix(seed, static_cast<uint64_t>(t), 1) % static_cast<uint64_t>(n));
    const std::vector<int> parent = random_tree(n, root, mix(seed, static_cast<uint64_t>(t), 2));
    for (int r = 0; r < n; r++) {
      Lane& lane = s.ranks[static_cast<size_t>(r)].lanes[static_cast<size_t>(t)];
      const Operand up = Operand::peer(parent[static_cast<size_t>(r)], t);
      Operands children;
      for (int q = 0; q < n; q++)
        if (q != root && parent[static_cast<size_t>(q)] == r)
          children.push_back(Operand::peer(q, t));
      Operands sources = children, destinations = children;
      sources.push_back(Operand::input(t));
      destinations.insert(destinations.begin(), Operand::output(t));
      if (r == root) {
        add(lane, sources, destinations);
      } else {
        add(lane, sources, {up});
        add(lane, {up}, destinations);
      }
    }
  }
  return s;
}

// Half of the steps leave their result in scratch memory, and another step takes it from there.
void stage_in_scratch(Schedule& schedule, Random& random) {
  for (RankSchedule& rank : schedule.ranks)
    for (Lane& lane : rank.lanes) {
      std::vector<Step> steps;
      for (const Step& step : lane.steps) {
        if (random.below(2) == 0) {
          steps.push_back(step);
          continue;
        }
        const Operand between = Operand::scratch(rank.scratch_chunks++);
        steps.push_back({step.from, {between}, step.count, {}});
        steps.push_back({{between}, step.to, step.count, {}});
      }
      lane.steps = std::move(steps);
    }
}

// Messages stay in the lanes of one number, and lanes wait for smaller numbers only: no cycle.
void chain_lanes(Schedule& schedule, Random& random) {
  for (RankSchedule& rank : schedule.ranks)
    for (size_t l = 1; l < rank.lanes.size(); l++) {
      const auto before = static_cast<int>(random.below(l));
      const std::vector<Step>& steps = rank.lanes[static_cast<size_t>(before)].steps;
      if (steps.empty() || rank.lanes[l].steps.empty()) continue;
      random.pick(std::vector<Step*>{&rank.lanes[l].steps.front(), &rank.lanes[l].steps.back()})
          ->after.push_back({before, static_cast<int>(random.below(steps.size()))});
    }
}

}  // namespace

Schedule random_schedule(int nranks, uint64_t seed) {
  Random random(seed);
  constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
                                       CollectiveKind::kAllReduce, CollectiveKind::kBroadcast,
                                       CollectiveKind::kReduce};
  Collective c{kKinds[random.below(std::size(kKinds))], nranks, 0};
  if (c.rooted()) c.root = static_cast<int>(random.below(static_cast<uint64_t>(nranks)));
  const auto chunks = static_cast<int>(1 + random.below(4));
  Schedule schedule = c.kind == CollectiveKind::kAllReduce ? random_all_reduce(c, chunks, seed)
                                                           : random_forest(c, chunks, seed);
  if (random.below(2) == 0) stage_in_scratch(schedule, random);
  if (random.below(2) == 0) chain_lanes(schedule, random);
  return schedule;
}

}  // namespace weft::test
