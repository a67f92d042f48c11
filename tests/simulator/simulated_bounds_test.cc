// No simulation beats the bound, for any machine and schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "algorithms/bounds/bounds.h"
#include "algorithms/catalogue/catalogue.h"
#include "algorithms/generators/generators.h"
#include "src/schedule/verify.h"
#include "src/simulator/simulator.h"
#include "tests/simulator/hard_bound.h"
#include "tests/simulator/machines.h"
#include "tests/simulator/random_schedules.h"
#include "tests/support/cpu_time.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

SimulationOptions random_options(uint64_t seed) {
  SimulationOptions options;
  options.fifo_depth = 2 + static_cast<int>(mix(seed, 1) % 7);
  options.slice_bytes = static_cast<double>(1 + mix(seed, 2) % 200'000);
  options.most_slices = 1 + static_cast<int>(mix(seed, 3) % 16);
  return options;
}

struct Estimated {
  int simulated = 0;  // number of slices
  bool exact = false;
};

// Compares the estimate of a schedule with the simulated time of all its slices.
Estimated estimate_of(const Machine& m, const Schedule& schedule, double bytes,
                      SimulationOptions options) {
  const Simulation whole = simulate(m, schedule, bytes, options);
  options.estimate = true;
  const Simulation estimate = simulate(m, schedule, bytes, options);
  EXPECT_EQ(estimate.slices, whole.slices);
  EXPECT_LE(estimate.algbw_gbps, hard_bound(m, schedule.collective) * (1 + 1e-9));
  EXPECT_EQ(estimate.links.size(), whole.links.size());
  for (size_t l = 0; l < std::min(whole.links.size(), estimate.links.size()); l++)
    EXPECT_NEAR(estimate.links[l].busy_us, whole.links[l].busy_us, whole.links[l].busy_us * 1e-9);
  return {estimate.simulated, std::abs(estimate.time_us / whole.time_us - 1) < 0.001};
}

// A pace can be even for a while and still change later, but that is rare.
TEST(Estimates, AreMostlyWhatAllSlicesTakeOnRandomMachines) {
  const uint64_t seed = test_seed();
  int wrong = 0;
  for (uint64_t i = 0; i < static_cast<uint64_t>(test_samples(60)); i++) {
    const int n = 2 + static_cast<int>(mix(seed, i) % 7);
    const Machine m = random_machine(n, mix(seed, i));
    const CollectiveKind kind =
        i % 2 == 0 ? CollectiveKind::kAllGather : CollectiveKind::kReduceScatter;
    const Schedule schedule =
        random_forest({kind, n, 0}, 1 + static_cast<int>(i % 4), mix(seed, i + 1));
    SimulationOptions options;
    options.fifo_depth = 2 + static_cast<int>(mix(seed, i + 2) % 7);
    wrong += estimate_of(m, schedule, 65536.0 * 256 * n, options).exact ? 0 : 1;
  }
  EXPECT_LE(wrong, 2 + test_samples(60) / 20);
}

TEST(Estimates, TakeFewSlicesWhereTheyComeAtAnEvenPace) {
  for (const char* topo : {"dgx2", "dgx-h100x1"}) {
    const Machine m = load_machine(topo);
    const auto n = static_cast<int>(gpus(m).size());
    for (const Generator& generator : generators())
      for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kAllReduce,
                                        CollectiveKind::kBroadcast, CollectiveKind::kAllToAll}) {
        const Collective c{kind, n, 0};
        if (!generator.supports(c) || generator.cpu_nodes > 0) continue;
        const Estimated e = estimate_of(m, generator.make(c, false), 65536.0 * 256 * n, {});
        // A chain fills slowly.
        const int most = generator.name == kChain.name ? 300 : 100;
        EXPECT_LT(e.simulated, most) << topo << " " << generator.name << " " << name(kind);
        EXPECT_TRUE(e.exact) << topo << " " << generator.name << " " << name(kind);
      }
  }
}

// For many ranks there is no time to fill a pipeline. A chain of 32 hops is not slower for that.
TEST(Estimates, TakeThePaceOfTheFirstSlices) {
  const Machine m = load_machine("dgx-h100x4");
  for (const Generator* generator : {&kRing, &kTree, &kDirect, &kRecursive})
    for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kBroadcast}) {
      const Collective c{kind, 32, 0};
      if (!generator->supports(c)) continue;
      const Schedule schedule = generator->make(c, false);
      SimulationOptions options;
      options.step_us = 0.6;
      const double bytes = 65536.0 * 256 * (kind == CollectiveKind::kAllGather ? 32 : 1);
      const double whole = simulate(m, schedule, bytes, options).time_us;
      options.most_simulated = 4;
      const Simulation first = simulate(m, schedule, bytes, options);
      EXPECT_EQ(first.simulated, 4);
      EXPECT_EQ(first.slices, 256);
      EXPECT_FALSE(first.even);
      EXPECT_NEAR(first.time_us, whole, 0.05 * whole) << generator->name << " " << name(kind);
      EXPECT_LE(first.algbw_gbps, hard_bound(m, c) * (1 + 1e-9));
    }
}

TEST(SimulatedTime, IsNeverBelowTheBoundForGeneratorsOnRandomMachines) {
  const uint64_t seed = test_seed();
  int simulated = 0;
  for (uint64_t i = 0; i < static_cast<uint64_t>(test_samples(40)); i++) {
    const int n = 2 + static_cast<int>(mix(seed, i) % 7);
    const Machine m = random_machine(n, mix(seed, i));
    for (int kind = 0; kind < kCollectiveKinds; kind++) {
      Collective c{static_cast<CollectiveKind>(kind), n, 0};
      if (c.kind == CollectiveKind::kSendRecv) continue;
      c.root = c.rooted() ? static_cast<int>(mix(seed, i + 1) % static_cast<uint64_t>(n)) : 0;
      const double bound = hard_bound(m, c);
      for (const Generator& generator : generators()) {
        // The bounds are for machines where only GPUs reduce.
        if (!generator.supports(c) || generator.cpu_nodes > 0) continue;
        const uint64_t draw = mix(mix(seed, i), static_cast<uint64_t>(simulated++));
        const double bytes = static_cast<double>(mix(draw) % 10'000'000);
        const Simulation s = simulate(m, generator.make(c, false), bytes, random_options(draw));
        EXPECT_LE(s.algbw_gbps, bound * (1 + 1e-9))
            << generator.name << " " << name(c.kind) << " of " << n << " ranks, " << bytes
            << " bytes, on " << m.name;
        EXPECT_GT(s.time_us, 0);
      }
    }
  }
  EXPECT_GT(simulated, 100);
}

TEST(SimulatedTime, IsNeverBelowTheBoundForRandomForestsOnRandomMachines) {
  const uint64_t seed = test_seed();
  for (uint64_t i = 0; i < static_cast<uint64_t>(test_samples(60)); i++) {
    const int n = 2 + static_cast<int>(mix(seed, i) % 7);
    const Machine m = random_machine(n, mix(seed, i));
    for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
                                      CollectiveKind::kBroadcast, CollectiveKind::kReduce}) {
      const Collective c{kind, n, 0};
      const Schedule forest = random_forest(c, 1 + static_cast<int>(i % 3), mix(seed, i));
      ASSERT_NO_THROW(verify(forest, false)) << name(kind) << " of " << n;
      const Simulation s = simulate(m, forest, 5e6, random_options(mix(seed, i)));
      EXPECT_LE(s.algbw_gbps, throughput_bound(m, c).algbw_gbps * (1 + 1e-9))
          << name(kind) << " of " << n << " ranks on " << m.name;
    }
  }
}

TEST(SimulatedTime, IsFoundAtMillionsOfEventsASecond) {
  const int n = 64;
  const Machine m = switched({.hosts = 8, .switch_us = 0.35, .nic_us = 1.3});
  const Schedule schedule = kDirect.make({CollectiveKind::kAllToAll, n, 0}, false);
  SimulationOptions options;
  options.most_slices = 32;
  const double begin = cpu_seconds();
  const Simulation s = simulate(m, schedule, 1e9, options);
  const double rate = static_cast<double>(s.events) / (cpu_seconds() - begin);
  RecordProperty("events_per_second", static_cast<int>(rate));
  std::printf("[   rate   ] %.2f million events a second (%.2f million)\n", rate / 1e6,
              static_cast<double>(s.events) / 1e6);
  EXPECT_GT(s.events, 500'000u);
  // Far below the real rate: a busy machine passes, a quadratic algorithm does not.
  EXPECT_GT(rate, kSanitized ? 2'000 : 200'000);
}

}  // namespace
}  // namespace weft::test
