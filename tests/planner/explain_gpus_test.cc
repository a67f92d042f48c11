// What the machine decides, for every machine of the catalogue: predictions against bounds, chosen
// plans against a fine-sliced simulation, and NICs.
#include "src/tools/explain_gpus.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "algorithms/bounds/bounds.h"
#include "algorithms/catalogue/catalogue.h"
#include "algorithms/synth/synthesis.h"
#include "src/planner/gpu_rates.h"
#include "src/planner/plan_facts.h"
#include "src/simulator/lane_cut.h"
#include "src/simulator/lane_simulation.h"
#include "src/simulator/simulator.h"
#include "src/topology/graph/rank_machine.h"
#include "tests/planner/planned_machine.h"
#include "tests/simulator/hard_bound.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

constexpr CollectiveKind kFive[] = {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                                    CollectiveKind::kReduceScatter, CollectiveKind::kBroadcast,
                                    CollectiveKind::kReduce};

// One of `stride` machines, by the seed; all of them if more samples are wanted, or the one that
// WEFT_TEST_MACHINES names.
std::vector<std::string> machines(size_t most_gpus, uint64_t stride) {
  if (const char* one = std::getenv("WEFT_TEST_MACHINES"); one != nullptr) return {one};
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
  for (const std::string& name : machines(72, 3)) {
    const PlannedMachine on(load_machine(name), "0.2");
    for (const CollectiveKind kind : kFive) {
      const double hard_gbps = hard_bound(peer_ways(on.machine()), {kind, on.ranks(), 0});
      for (const uint64_t bytes : {1u << 10, 64u << 10, 4u << 20, 64u << 20, 1u << 30}) {
        const auto said = explain_call(on.explained(), kind, bytes);
        ASSERT_TRUE(said.contains("time_us")) << name << said.dump();
        EXPECT_GE(said["time_us"].get<double>(), said["bound_us"].get<double>())
            << name << said.dump();
        // The prediction itself, too.
        const double predicted =
            on.chooser().estimate_us(PlanCall::of_size({kind, on.ranks(), 0}, bytes));
        EXPECT_GE(predicted, 0.99 * static_cast<double>(bytes) / hard_gbps * 1e-3)
            << name << said.dump();
      }
    }
  }
}

Schedule schedule_of(const PlannedMachine& on, const Choice& choice, const Collective& c) {
  return choice.schedule != nullptr
             ? choice.schedule->out_of_place->schedule()
             : choice.generator->make_on(on.chooser().placement().hosts, c, false);
}

// A fine-sliced simulation of what executors run: as many instances of lanes as there are thread
// blocks in the slices that the lane kernel would cut, and loads and stores of small pieces. `fine`
// has the costs of steps.
double fine_us(const Machine& ways, const Schedule& schedule, PlanPath path, double bytes,
               SimulationOptions fine) {
  if (path == PlanPath::kLoadStore) fine.most_slices = 4096;
  const LaneCut cut = usual_cut(count_hosts(ways) > 1);
  const auto instances = static_cast<int>(lane_instances(cut, schedule, 1e300));
  const auto run = path == PlanPath::kLanes ? with_instances(schedule, instances) : std::nullopt;
  if (run) {
    const double chunk = block_bytes(schedule.collective, bytes) / schedule.chunks;
    fine.slice_bytes = bytes_per_pass(cut, ScheduleGraph(schedule, false), chunk) / instances;
    fine.most_slices = 1024;
    fine.step_us *= lanes_per_block(cut, schedule);
    fine.message_us *= lanes_per_block(cut, schedule);
  }
  return simulate(ways, run ? *run : schedule, bytes, fine).time_us;
}

// What is judged with the costs of steps.
struct Judge {
  explicit Judge(const PlannedMachine& on)
      : ways(peer_ways(on.machine())),
        rates(gpu_rates(on.machine(), nullptr)),
        in_lanes(lane_costs({}, rates)),
        in_kernels(kernel_costs({}, rates, on.ranks())) {}

  double us(const Schedule& schedule, PlanPath path, double bytes) const {
    const bool lanes = path == PlanPath::kLanes;
    return fine_us(ways, schedule, path, bytes, lanes ? in_lanes : in_kernels) +
           (lanes ? rates.lane_start_us : 0);
  }

  Machine ways;
  GpuRates rates;
  SimulationOptions in_lanes, in_kernels;
};

// Without the costs of steps. A plan that fills links less must be faster with these costs than one
// that is made to fill links.
TEST(ExplainGpus, ChoosesPlansThatComeCloseToTheBound) {
  for (const std::string& name : machines(16, 5)) {
    const PlannedMachine on(load_machine(name), "10");
    if (!on.chooser().placement().lanes) continue;  // through host memory: no links of GPUs
    const Judge judge(on);
    for (const CollectiveKind kind : kFive) {
      constexpr double kBytes = 1 << 30;
      const Collective c{kind, on.ranks(), 0};
      const Choice choice = on.chooser().choose(PlanCall::of_size(c, static_cast<size_t>(kBytes)));
      const Schedule schedule = schedule_of(on, choice, c);
      const double us = fine_us(judge.ways, schedule, choice.path, kBytes, {});
      const double share = kBytes / us * 1e-3 / throughput_bound(judge.ways, c).algbw_gbps;
      std::printf("%-16s %-14s %.3f %s\n", name.c_str(), std::string(weft::name(kind)).c_str(),
                  share, choice.name);
      if (share >= 0.95) continue;
      const Synthesized full = synthesize(judge.ways, c, kBytes);
      EXPECT_LT(judge.us(schedule, choice.path, kBytes),
                judge.us(full.schedule, PlanPath::kLanes, kBytes))
          << name << " " << choice.name;
      EXPECT_GE(share, 0.85) << name << " " << choice.name;
    }
  }
}

// Those that schedules are made for, and sizes between them.
constexpr double kMadeFor[] = {1024, 65536, 4.0 * 1048576, 64.0 * 1048576, 1073741824};
constexpr double kBetween[] = {16384, 262144, 1048576, 16.0 * 1048576, 256.0 * 1048576};

// A machine gets one of both lists, by the seed; both if more samples are wanted.
std::vector<double> judged_sizes(uint64_t number) {
  const bool all = test_samples(1) != 1, between = (test_seed() + number) % 2 == 1;
  std::vector<double> sizes;
  if (all || !between) sizes.insert(sizes.end(), std::begin(kMadeFor), std::end(kMadeFor));
  if (all || between) sizes.insert(sizes.end(), std::begin(kBetween), std::end(kBetween));
  return sizes;
}

// With the costs of steps, against a search for just that size. WEFT_TEST_SYNTHESIS_SECONDS: of
// each search, 2 unless told.
TEST(ExplainGpus, ChoosesPlansNearTheBestThatSynthesisFinds) {
  if (kSanitized) GTEST_SKIP() << "sanitized: searches find less in their time";
  const char* seconds = std::getenv("WEFT_TEST_SYNTHESIS_SECONDS");
  SynthesisOptions search;
  search.time_limit_s = seconds != nullptr ? std::stod(seconds) : 2;
  search.good_enough = 2;  // it tries all candidates
  uint64_t number = 0;
  for (const std::string& name : machines(16, 9)) {
    const std::vector<double> sizes = judged_sizes(number++);
    const PlannedMachine on(load_machine(name), "60");
    if (!on.chooser().placement().lanes) continue;
    const Judge judge(on);
    search.lanes = usual_cut(count_hosts(judge.ways) > 1);
    search.simulation = quick_lanes(judge.in_lanes, on.ranks());
    for (const CollectiveKind kind : kFive)
      for (const double bytes : sizes) {
        const Collective c{kind, on.ranks(), 0};
        const Choice choice = on.chooser().choose(PlanCall::of_size(c, static_cast<size_t>(bytes)));
        const double us = judge.us(schedule_of(on, choice, c), choice.path, bytes);
        const Synthesized found = synthesize(judge.ways, c, bytes, search);
        const double best = judge.us(found.schedule, PlanPath::kLanes, bytes);
        std::printf("%-16s %-14s %10.0f %10.1f us, searched %10.1f us, %.3f %s\n", name.c_str(),
                    std::string(weft::name(kind)).c_str(), bytes, us, best, us / best, choice.name);
        EXPECT_LE(us, 1.05 * best) << name << " " << choice.name << " against " << found.engine;
      }
  }
}

}  // namespace
}  // namespace weft::test
