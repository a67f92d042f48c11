// What the machine decides, for every machine of the catalogue: predictions against bounds, chosen
// plans against a fine-sliced simulation, and NICs.
#include "src/tools/explain_gpus.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "algorithms/bounds/bounds.h"
#include "algorithms/catalogue/catalogue.h"
#include "src/planner/plan_facts.h"
#include "src/simulator/simulator.h"
#include "src/topology/graph/rank_machine.h"
#include "tests/planner/instances.h"
#include "tests/planner/planned_machine.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

constexpr CollectiveKind kFive[] = {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                                    CollectiveKind::kReduceScatter, CollectiveKind::kBroadcast,
                                    CollectiveKind::kReduce};

// One of `stride` machines, by the seed; all of them if more samples are wanted.
std::vector<std::string> machines(size_t most_gpus, uint64_t stride) {
  std::vector<std::string> names;
  for (const std::string& name : catalogue_names()) {
    const Machine machine = load_machine(name);
    const size_t n = gpus(machine).size();
    if (n <= most_gpus) names.push_back(name);
    if (2 * n <= most_gpus && !nodes_of(machine, NodeType::kNic).empty())
      names.push_back(name + "x2");
  }
  uint64_t number = test_seed();
  if (test_samples(1) == 1)
    std::erase_if(names, [&](const std::string&) { return number++ % stride != 0; });
  return names;
}

TEST(ExplainGpus, NeverPredictsLessThanTheBound) {
  for (const std::string& name : machines(72, 2)) {
    const PlannedMachine on(load_machine(name), "0.2");
    for (const CollectiveKind kind : kFive)
      for (const uint64_t bytes : {1u << 10, 64u << 10, 4u << 20, 64u << 20, 1u << 30}) {
        const auto said = explain_call(on.explained(), kind, bytes);
        ASSERT_TRUE(said.contains("time_us")) << name << said.dump();
        const double bound = said["bound_us"];
        EXPECT_GE(said["time_us"].get<double>(), bound) << name << said.dump();
        // The prediction itself, too. For all_reduce the bound is one that a schedule may beat.
        if (kind == CollectiveKind::kAllReduce) continue;
        const double predicted =
            on.chooser().estimate_us(PlanCall::of_size({kind, on.ranks(), 0}, bytes));
        EXPECT_GE(predicted, 0.99 * bound) << name << said.dump();
      }
  }
}

// A fine-sliced simulation of what executors run, without the costs of steps: as many instances of
// lanes as there are thread blocks, and loads and stores of small pieces.
double reached(const PlannedMachine& on, CollectiveKind kind, double bytes) {
  const Collective c{kind, on.ranks(), 0};
  const Choice choice = on.chooser().choose(PlanCall::of_size(c, static_cast<size_t>(bytes)));
  const Schedule schedule =
      choice.schedule != nullptr
          ? choice.schedule->out_of_place->schedule()
          : choice.generator->make_on(on.chooser().placement().hosts, c, false);
  SimulationOptions fine;
  if (choice.path == PlanPath::kLoadStore) fine.most_slices = 4096;
  size_t lanes = 1;
  for (const RankSchedule& rank : schedule.ranks) lanes = std::max(lanes, rank.lanes.size());
  const auto instances = std::max(1, 32 / static_cast<int>(lanes));
  const auto run =
      choice.path == PlanPath::kLanes ? with_instances(schedule, instances) : std::nullopt;
  const Machine ways = peer_ways(on.machine());
  return simulate(ways, run ? *run : schedule, bytes, fine).algbw_gbps /
         throughput_bound(ways, c).algbw_gbps;
}

TEST(ExplainGpus, ChoosesPlansThatComeCloseToTheBound) {
  for (const std::string& name : machines(16, 3)) {
    const PlannedMachine on(load_machine(name), "10");
    if (!on.chooser().placement().lanes) continue;  // through host memory: no links of GPUs
    for (const CollectiveKind kind : kFive) {
      const double share = reached(on, kind, 1 << 30);
      const auto said = explain_call(on.explained(), kind, 1 << 30);
      std::printf("%-16s %-14s %.3f %s\n", name.c_str(), std::string(weft::name(kind)).c_str(),
                  share, said["plan"].get<std::string>().c_str());
      // Between hosts a broadcast of fewer, larger chunks may cost less than one that uses all
      // links: steps cost time too.
      const bool rooted = Collective{kind, on.ranks(), 0}.rooted();
      const bool hosts = count_hosts(on.machine()) > 1;
      EXPECT_GE(share, hosts && rooted ? 0.65 : 0.95) << name << said.dump();
    }
  }
}

}  // namespace
}  // namespace weft::test
