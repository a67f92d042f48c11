// Schedules from files, on the machines they were made for: ours in tests/data, and those that
// other people synthesized. Theirs are not part of this repository; WEFT_SHARED_SCHEDULES names the
// folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>

#include "algorithms/bounds/bounds.h"
#include "algorithms/catalogue/catalogue.h"
#include "src/schedule/schedule_file.h"
#include "src/simulator/simulator.h"
#include "tests/simulator/machines.h"
#include "tests/support/require.h"

namespace weft::test {
namespace {

const std::filesystem::path kFolder = WEFT_SHARED_SCHEDULES;

Schedule loaded(const std::string& file) {
  const bool unnamed = file.find("no-coll") != std::string::npos;
  return load_schedule(kFolder / file,
                       unnamed ? std::optional(CollectiveKind::kAllGather) : std::nullopt)
      .schedule;
}

// The least predicted time of several files.
double best_us(const Machine& machine, std::initializer_list<const char*> files, double bytes) {
  double best = std::numeric_limits<double>::infinity();
  for (const char* file : files)
    best = std::min(best, simulate(machine, loaded(file), bytes).time_us);
  return best;
}

void expect_within_bound(const Machine& machine, const Schedule& schedule,
                         const std::string& name) {
  const double bound = throughput_bound(machine, schedule.collective).algbw_gbps;
  for (const double bytes : {1024.0, 4194304.0}) {
    SimulationOptions options;
    options.fifo_depth = 2;
    const Simulation s = simulate(machine, schedule, bytes, options);
    EXPECT_GT(s.time_us, 0) << name;
    EXPECT_LE(s.algbw_gbps, bound * (1 + 1e-9)) << name;
  }
}

Machine our_machine(const std::string& file) {
  return load_machine(WEFT_TEST_DATA "/machines/" + file);
}
Schedule our_schedule(const std::string& file) {
  return load_schedule(WEFT_TEST_DATA "/schedules/" + file).schedule;
}

TEST(OurSchedules, AllSimulateWithinTheBound) {
  const std::map<std::string, std::vector<const char*>> schedules = {
      {"two_pairs.json",
       {"allgather_direct.xml", "allgather_relay.xml", "allreduce_ring.xml", "allreduce_tree.xml",
        "alltoall_pairs.xml", "alltoall_relay.xml"}},
      {"nccl/virtual_3x.xml",
       {"allgather_copy.xml", "allreduce_pairs.xml", "broadcast_chain.xml",
        "reducescatter_ring.xml"}}};
  for (const auto& [machine, files] : schedules)
    for (const char* file : files)
      expect_within_bound(our_machine(machine), our_schedule(file), file);
}

// Six steps of a quarter of the array, each over a link of 48 GB/s and 0.7 us.
TEST(OurSchedules, OfARingTakeAsLongAsItsStepsDo) {
  const Machine machine = our_machine("nccl/xgmi_4x.xml");
  const Schedule ring = our_schedule("allreduce_ring.xml");
  const auto steps_us = [](double bytes) { return 6 * (0.7 + bytes / 4 / 48e3); };
  EXPECT_NEAR(simulate(machine, ring, 1024).time_us, steps_us(1024), 0.001);
  constexpr double kGiB = 1 << 30;  // sent in slices, whose latencies show a little
  EXPECT_NEAR(simulate(machine, ring, kGiB).time_us, steps_us(kGiB), 0.05 * steps_us(kGiB));
}

TEST(PublishedSchedules, AllSimulateWithinTheBound) {
  if (!std::filesystem::exists(kFolder)) WEFT_SKIP("shared", "no folder " + kFolder.string());
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kFolder)) {
    if (entry.path().extension() != ".xml") continue;
    files++;
    const std::string name = std::filesystem::relative(entry.path(), kFolder).string();
    const Schedule schedule = loaded(name);
    const Machine machine = name.find("dgx2x2") != std::string::npos   ? load_machine("dgx2x2")
                            : name.find("ndv2x2") != std::string::npos ? load_machine("ndv2x2")
                                                                       : load_machine("dgx-a100");
    expect_within_bound(machine, schedule, name);
  }
  EXPECT_GE(files, 15);
}

// Predictions agree within 2% with an independent simulation of the same files.
TEST(PublishedSchedules, TakeAsLongAsAnIndependentSimulationFound) {
  if (!std::filesystem::exists(kFolder)) WEFT_SKIP("shared", "no folder " + kFolder.string());
  constexpr double kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;
  const auto near = [](double time_us, double expected_us) {
    EXPECT_NEAR(time_us, expected_us, 0.02 * expected_us);
  };
  const Machine ndv2 = load_machine("ndv2x2");
  const auto on_ndv2 = {"taccl/allgather-ndv2x2-1KB.xml", "taccl/allgather-ndv2x2-large.xml"};
  near(best_us(ndv2, on_ndv2, kGiB), kGiB / 24.97e3);
  near(best_us(ndv2, on_ndv2, 64 * kMiB), 64 * kMiB / 24.5e3);
  near(best_us(ndv2, on_ndv2, kMiB), 47.5);
  near(best_us(ndv2, on_ndv2, 64 * kKiB), 9.9);
  near(best_us(ndv2, on_ndv2, kKiB), 8.9);
  const Machine dgx2 = load_machine("dgx2-tecclx2");
  const auto on_dgx2 = {"taccl/allgather-dgx2x2-1KB.xml", "taccl/allgather-dgx2x2-32KB.xml",
                        "taccl/allgather-dgx2x2-large.xml"};
  near(best_us(dgx2, on_dgx2, kGiB), kGiB / 129.0e3);
  near(best_us(dgx2, on_dgx2, kMiB), 20.1);
  near(best_us(dgx2, on_dgx2, kKiB), 6.1);
}

}  // namespace
}  // namespace weft::test
