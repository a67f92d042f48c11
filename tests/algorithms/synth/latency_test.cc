// The latency engine: plans for one size, woven, proved and simulated.
#include "algorithms/synth/latency/latency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>

#include "algorithms/bounds/bounds.h"
#include "algorithms/catalogue/catalogue.h"
#include "algorithms/synth/weave/weave.h"
#include "src/base/error.h"
#include "src/schedule/schedule_file.h"
#include "src/schedule/verify.h"
#include "src/simulator/simulator.h"
#include "tests/algorithms/synth/transfer_checks.h"
#include "tests/simulator/machines.h"
#include "tests/support/cpu_time.h"
#include "tests/support/require.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
                                     CollectiveKind::kAllReduce, CollectiveKind::kBroadcast,
                                     CollectiveKind::kReduce};
constexpr double kKilo = 1024, kMega = kKilo * kKilo, kGiga = kKilo * kMega;

int count(const Machine& machine) { return static_cast<int>(gpus(machine).size()); }

Schedule woven(const Machine& machine, const Routing& routing) {
  WeaveOptions options;
  options.machine = &machine;
  options.fuse = false;
  options.ports = true;
  return weave(routing, options);
}

// Proves the plan that the engine prefers, and returns its simulated time.
double simulated_us(const Machine& machine, const Collective& collective, double bytes) {
  const LatencyPlan plan = latency_plans(machine, collective, bytes).front();
  EXPECT_EQ(transfer_error(machine, plan.routing), "");
  const VerifiedSchedule proved = verify(woven(machine, plan.routing), false, kWovenFifoDepth);
  return simulate(machine, proved.schedule(), bytes).time_us;
}

double gather_us(const std::string& topo, double bytes) {
  const Machine m = load_machine(topo);
  return simulated_us(m, {CollectiveKind::kAllGather, count(m)}, bytes);
}

TEST(LatencyEngine, MakesCorrectSchedulesOfAllItsCollectives) {
  for (const char* topo : {"dgx1v", "ndv2x2", "pcie-8x", "rtx4090-4x"})
    for (const CollectiveKind kind : kKinds)
      for (const double bytes : {kKilo, 256 * kKilo}) {
        const Machine m = load_machine(topo);
        EXPECT_GT(simulated_us(m, {kind, count(m), 1}, bytes), 0) << topo << " " << name(kind);
      }
}

TEST(LatencyEngine, MakesCorrectSchedulesForRandomMachines) {
  const uint64_t seed = test_seed();
  for (uint64_t i = 0; i < static_cast<uint64_t>(test_samples(15)); i++) {
    const int n = 2 + static_cast<int>(mix(seed, i) % 7);
    const Machine m = random_machine(n, mix(seed, i + 1000));
    for (const CollectiveKind kind : kKinds) {
      const Collective c{kind, n, static_cast<int>(mix(seed, i + 2000) % static_cast<uint64_t>(n))};
      const double bytes = static_cast<double>(1 + mix(seed, i + 3000) % 4'000'000);
      const double us = simulated_us(m, c, bytes);
      if (kind == CollectiveKind::kAllReduce) continue;  // all_reduce can beat its bound
      EXPECT_GE(us, bytes * 1e-3 / throughput_bound(m, c).algbw_gbps * (1 - 1e-9));
    }
  }
}

// Only the network reaches one GPU. It gets everything too, though its host already has the data.
TEST(LatencyEngine, ServesGpusThatTheirHostDoesNotReach) {
  Machine m = load_machine("dgx-h100x2");
  const int lonely = gpus(m)[3];
  std::erase_if(m.links, [&](const Link& l) {
    return l.type == LinkType::kNvlink && (l.from == lonely || l.to == lonely);
  });
  for (const CollectiveKind kind : kKinds)
    for (const double bytes : {kKilo, 4 * kMega})
      EXPECT_GT(simulated_us(m, {kind, 16, 3}, bytes), 0) << name(kind);
}

// The prediction equals the simulation if FIFOs do not fill up in the wrong place.
TEST(LatencyEngine, PredictsWhatTheSimulatorSays) {
  for (const char* topo : {"ndv2x2", "dgx2-tecclx2", "dgx-h100x2", "dgx1v"})
    for (double bytes = kKilo; bytes <= 16 * kMega; bytes *= 16) {
      const Machine m = load_machine(topo);
      const Collective c{CollectiveKind::kAllGather, count(m)};
      const LatencyPlan plan = latency_plans(m, c, bytes).front();
      const double us = simulate(m, woven(m, plan.routing), bytes).time_us;
      EXPECT_NEAR(plan.predicted_us, us, us * 0.06) << topo << ", " << bytes << " bytes";
    }
}

// Sizes are those of the whole gathered array.
TEST(LatencyEngine, ReachesTheFiguresOfPublishedSynthesizers) {
  EXPECT_LE(gather_us("dgx2-tecclx2", kKilo), 4.5);                      // TE-CCL: 4.0
  EXPECT_LE(gather_us("dgx2-tecclx2", kMega), 10.75);                    // TE-CCL: 10.75
  EXPECT_LE(gather_us("ndv2x2", kKilo), 8.9);                            // TACCL
  EXPECT_LE(gather_us("ndv2x2", 64 * kKilo), 9.9);                       // TACCL
  EXPECT_LE(gather_us("ndv2x2", kMega), 47.5);                           // TACCL
  EXPECT_GE(64 * kMega * 1e-3 / gather_us("ndv2x2", 64 * kMega), 24.5);  // TACCL
  EXPECT_GE(kGiga * 1e-3 / gather_us("ndv2x4", kGiga), 16.4);            // TE-CCL: 15.4
}

TEST(LatencyEngine, IsAtLeastAsFastAsSchedulesWrittenByHandAtEverySize) {
  const std::string topo = WEFT_TEST_DATA "/machines/two_pairs.json";
  for (const char* name : {"allgather_direct.xml", "allgather_relay.xml"}) {
    const Schedule by_hand =
        load_schedule(std::string(WEFT_TEST_DATA "/schedules/") + name).schedule;
    for (double bytes = kKilo; bytes <= kGiga; bytes *= 4) {
      const double us = simulate(load_machine(topo), by_hand, bytes).time_us;
      EXPECT_LE(gather_us(topo, bytes), us * (1 + 1e-9)) << name << ", " << bytes << " bytes";
    }
  }
}

TEST(LatencyEngine, IsAtLeastAsFastAsTacclsOwnFilesAtEverySize) {
  const std::filesystem::path folder = std::filesystem::path(WEFT_SHARED_SCHEDULES) / "taccl";
  if (!std::filesystem::exists(folder)) WEFT_SKIP("shared", "no folder " + folder.string());
  const std::map<std::string, std::vector<const char*>> files = {
      {"ndv2x2", {"allgather-ndv2x2-1KB.xml", "allgather-ndv2x2-large.xml"}},
      {"dgx2-tecclx2",
       {"allgather-dgx2x2-1KB.xml", "allgather-dgx2x2-32KB.xml", "allgather-dgx2x2-large.xml"}}};
  for (const auto& [topo, theirs] : files) {
    const Machine m = load_machine(topo);
    for (double bytes = kKilo; bytes <= (kSanitized ? kMega : kGiga); bytes *= 4) {
      double best = std::numeric_limits<double>::infinity();
      for (const char* file : theirs)
        best = std::min(best, simulate(m, load_schedule(folder / file).schedule, bytes).time_us);
      EXPECT_LE(gather_us(topo, bytes), best) << topo << ", " << bytes << " bytes";
    }
  }
}

// The smallest sizes take one hop to every rank, even if that sends many messages through one NIC.
TEST(LatencyEngine, TakesOneHopPerRankWhereNothingElseCounts) {
  const Machine m = load_machine("dgx2-tecclx2");
  const LatencyPlan plan = latency_plans(m, {CollectiveKind::kAllGather, 32}, kKilo).front();
  for (const Transfer& t : plan.routing.transfers) EXPECT_EQ(t.from, t.piece);
  // 2.6 us from host to host, and 32 messages of 32 bytes through each NIC.
  EXPECT_NEAR(plan.predicted_us, 2.6 + 32 * 32 / 12.5e3, 0.01);
}

TEST(LatencyEngine, CrossesTheNetworkOnceWhereBandwidthCounts) {
  const Machine m = load_machine("ndv2x2");
  const LatencyPlan plan = latency_plans(m, {CollectiveKind::kAllGather, 16}, 64 * kMega).front();
  std::map<int, int> crossings;
  for (const Transfer& t : plan.routing.transfers)
    if ((t.from < 8) != (t.to < 8)) crossings[t.piece]++;
  EXPECT_EQ(crossings.size(), static_cast<size_t>(16 * plan.routing.chunks));
  for (const auto& [piece, times] : crossings) EXPECT_EQ(times, 1) << piece;
}

TEST(LatencyEngine, IsFastEnoughToRunAtInit) {
  if (kSanitized) GTEST_SKIP() << "sanitized";
  const std::pair<const char*, int> limits[] = {
      {"dgx1v", 100}, {"dgx-h100", 100}, {"ndv2x2", 100}, {"dgx2-tecclx2", 500}};
  for (const auto& [topo, ms] : limits) {
    const Machine m = load_machine(topo);
    const double begin = cpu_seconds();
    latency_plans(m, {CollectiveKind::kAllGather, count(m)}, kMega);
    // The limit is doubled because test machines are shared.
    EXPECT_TRUE(in_time(cpu_seconds() - begin, 2e-3 * ms)) << topo;
  }
}

TEST(LatencyEngine, GivesTheSamePlanEveryTime) {
  const Machine m = load_machine("ndv2x2");
  const Collective c{CollectiveKind::kAllReduce, 16};
  EXPECT_EQ(woven(m, latency_plans(m, c, kMega).front().routing),
            woven(m, latency_plans(m, c, kMega).front().routing));
}

TEST(LatencyEngine, SaysWhatItCannotDo) {
  Machine m = load_machine("dgx1v");
  EXPECT_THROW(latency_plans(m, {CollectiveKind::kAllToAll, 8}, kKilo), Error);
  for (Link& link : m.links)
    if (link.from == gpus(m)[2] || link.to == gpus(m)[2]) link.gbps = 0;
  try {
    latency_plans(m, {CollectiveKind::kAllGather, 8}, kKilo);
    FAIL() << "a GPU without bandwidth was accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "dgx1v: GPU g0 cannot reach GPU g2, not even through other GPUs");
  }
}

TEST(LatencyEngine, HasNothingToSendForOneRank) {
  const auto plans = latency_plans(load_machine("dgx1v"), {CollectiveKind::kAllGather, 1}, kKilo);
  ASSERT_FALSE(plans.empty());
  EXPECT_TRUE(plans.front().routing.transfers.empty());
}

}  // namespace
}  // namespace weft::test
