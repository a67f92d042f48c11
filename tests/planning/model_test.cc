// The cost model and the selection table, from inside.
#include <gtest/gtest.h>

#include "algorithms/catalogue/catalogue.h"
#include "algorithms/generators/generators.h"
#include "src/base/error.h"
#include "src/planner/fit_rates.h"
#include "src/planner/rank_placement.h"
#include "src/planner/rates_file.h"
#include "src/planner/table_builder.h"
#include "tests/support/environment.h"

namespace weft::test {
namespace {

ScheduleShape shape(const Generator& generator, CollectiveKind kind, int n,
                    std::span<const int> hosts = {}) {
  return shape_of(generator.make({kind, n, 0}, false), hosts);
}

TEST(ScheduleShape, CountsWhatGeneratorsAreKnownFor) {
  const ScheduleShape ring = shape(kRing, CollectiveKind::kAllReduce, 8);
  EXPECT_EQ(ring.hops, 14);
  EXPECT_EQ(ring.net_hops, 0);
  EXPECT_EQ(ring.chunks, 8);
  EXPECT_EQ(ring.ranks[3].messages, 28);  // 14 sent, 14 received
  EXPECT_EQ(shape(kOneShot, CollectiveKind::kAllReduce, 8).hops, 1);
  EXPECT_EQ(shape(kRecursive, CollectiveKind::kAllReduce, 8).hops, 3);
  EXPECT_EQ(shape(kDirect, CollectiveKind::kAllReduce, 8).hops, 2);
  const std::vector<int> hosts = {0, 0, 1, 1};
  const ScheduleShape between = shape(kRing, CollectiveKind::kAllGather, 4, hosts);
  EXPECT_EQ(between.hops, 2);
  EXPECT_EQ(between.net_hops, 2);
  EXPECT_EQ(between.ranks[1].net_messages, 3);
}

TEST(CostModel, GrowsWithBytesHopsAndCrowding) {
  const ScheduleShape ring = shape(kRing, CollectiveKind::kAllReduce, 4);
  const ScheduleShape one = shape(kOneShot, CollectiveKind::kAllReduce, 4);
  const Collective c{CollectiveKind::kAllReduce, 4, 0};
  HostSetting setting;
  setting.cores = 4;
  const Rates rates;
  for (double bytes = 1; bytes < 1e9; bytes *= 10)
    EXPECT_GE(predict(ring, c, bytes * 10, setting, rates),
              predict(ring, c, bytes, setting, rates));
  EXPECT_GT(predict(ring, c, 64, setting, rates), predict(one, c, 64, setting, rates));
  EXPECT_LT(predict(ring, c, 1e8, setting, rates), predict(one, c, 1e8, setting, rates));
  HostSetting crowded = setting;
  crowded.cores = 1;
  EXPECT_GT(predict(ring, c, 1e6, crowded, rates), predict(ring, c, 1e6, setting, rates));
}

TEST(FitRates, FindsTheRatesThatTimesWereMadeWith) {
  Rates truth;
  truth.hop_us = 3;
  truth.copy_us_mb = 200;
  truth.copy_far_us_mb = 400;
  truth.reduce_us_mb = 300;
  std::vector<TimedPlan> samples;
  for (const Generator* generator : {&kRing, &kOneShot, &kDirect, &kTree, &kRecursive})
    for (const int n : {2, 4})
      for (double bytes = 1024; bytes < 1e9; bytes *= 16) {
        const Collective c{CollectiveKind::kAllReduce, n, 0};
        TimedPlan sample{"", shape(*generator, c.kind, n), c, bytes, {}, 0};
        sample.setting.cores = 4;
        sample.us = predict(sample.shape, c, bytes, sample.setting, truth);
        samples.push_back(sample);
      }
  EXPECT_LT(fit_rates(samples, Rates{}).median_error, 0.05);
}

SelectionTable table_for(int nranks, const std::string& topo = "") {
  TableRequest request;
  request.nranks = nranks;
  request.setting.cores = 2;
  request.rules = TuningRules::from(Config::from_environment());
  Machine machine;
  if (!topo.empty()) {
    machine = load_machine(topo);
    request.machine = &machine;
    request.simulation.most_slices = 8;
  }
  return build_table(request);
}

TEST(SelectionTable, ChoosesTheCheapestAtEverySizeOfItsOwn) {
  for (const SelectionTable& table : {table_for(4), table_for(8, "ndv2")})
    for (int k = 0; k < kCollectiveKinds; k++)
      for (int i = 0; i < SelectionTable::kSizes; i++) {
        const auto kind = static_cast<CollectiveKind>(k);
        const double bytes = SelectionTable::size(i);
        const PlanOption* chosen = table.choose(kind, static_cast<uint64_t>(bytes), false);
        if (kind == CollectiveKind::kAllReduce) {
          ASSERT_NE(chosen, nullptr);
        }
        if (chosen == nullptr) continue;  // no generator keeps to NDv2's links
        for (const PlanOption& option : table.options)
          if (option.kind == kind && option.barred.empty()) {
            EXPECT_LE(SelectionTable::estimate(*chosen, bytes),
                      SelectionTable::estimate(option, bytes) * 1.03)
                << name(kind) << " " << bytes << " " << chosen->name << " " << option.name;
          }
      }
}

TEST(CpuHelp, IsPredictedForBoxesWithoutNvlinkOnly) {
  const auto cost = [](const SelectionTable& table, const std::string& plan) {
    for (const PlanOption& option : table.options)
      if (option.kind == CollectiveKind::kAllReduce && option.name == plan && !option.us.empty())
        return SelectionTable::estimate(option, 64 << 20);
    return 0.0;
  };
  const SelectionTable pcie = table_for(8, "pcie-8x");
  EXPECT_GT(cost(pcie, "cpu_reduce"), 0);
  EXPECT_NE(pcie.choose(CollectiveKind::kAllReduce, 64 << 20, false)->name, "cpu_reduce");
  EXPECT_EQ(cost(table_for(8, "ndv2"), "cpu_reduce"), 0);
  // Without peer-to-peer access a ring crosses host memory at every step, CPUs need it twice.
  const SelectionTable cards = table_for(8, "rtx4090-8x");
  EXPECT_LT(cost(cards, "cpu_reduce"), cost(cards, "ring"));
}

TEST(SelectionTable, HasAPlanForEverySizeThereIs) {
  const SelectionTable table = table_for(4);
  for (const uint64_t bytes :
       {uint64_t{0}, uint64_t{1}, uint64_t{255}, uint64_t{1} << 40, ~uint64_t{0}})
    EXPECT_NE(table.choose(CollectiveKind::kAllReduce, bytes, false), nullptr) << bytes;
  EXPECT_EQ(table_for(kMostTableRanks + 1).choose(CollectiveKind::kAllReduce, 8, false), nullptr);
}

TEST(SelectionTable, ComesBackFromItsText) {
  const SelectionTable table = table_for(8, "ndv2");
  EXPECT_EQ(SelectionTable::decode(table.encode()), table);
  const std::string text = table.encode();
  for (const size_t cut : {size_t{0}, size_t{5}, text.size() / 2, text.size() - 1})
    EXPECT_THROW(SelectionTable::decode(text.substr(0, cut)), Error) << cut;
}

TEST(NcclAlgo, IsReadAsNcclReadsIt) {
  const auto allows = [](const std::string& text, CollectiveKind kind, const char* generator) {
    TuningRules rules;
    rules.algorithms = parse_nccl_algo(text);
    return rules.bars_generator(kind, generator).empty();
  };
  EXPECT_TRUE(allows("", CollectiveKind::kAllReduce, "ring"));
  EXPECT_TRUE(allows("Ring", CollectiveKind::kAllReduce, "ring"));
  EXPECT_FALSE(allows("Ring", CollectiveKind::kAllReduce, "tree"));
  EXPECT_FALSE(allows("^Ring", CollectiveKind::kAllReduce, "ring"));
  EXPECT_TRUE(allows("^ring", CollectiveKind::kAllReduce, "tree"));
  EXPECT_TRUE(allows("ring;allreduce:tree", CollectiveKind::kAllReduce, "tree"));
  EXPECT_FALSE(allows("ring;allreduce:tree", CollectiveKind::kAllReduce, "ring"));
  EXPECT_TRUE(allows("ring;allreduce:tree", CollectiveKind::kAllGather, "ring"));
  EXPECT_TRUE(allows("NVLS,PAT", CollectiveKind::kAllReduce, "direct"));
  EXPECT_TRUE(allows("ring", CollectiveKind::kAllToAll, "pairwise"));  // not one of NCCL's
  for (const char* bad : {"rings", "allreduces:ring", "ring;allreduce:blue"})
    EXPECT_THROW(parse_nccl_algo(bad), Error) << bad;
  EXPECT_THROW(parse_nccl_proto("LL256"), Error);
  EXPECT_FALSE(parse_nccl_proto("^LL").allows(CollectiveKind::kAllReduce, 0));
}

TEST(NcclAlgo, DecidesTheTableAndCountsOnlyWhereThereIsSuchAPlan) {
  const ScopedEnvironment environment{{"NCCL_ALGO", "Tree"}};
  const SelectionTable table = table_for(4);
  for (const uint64_t bytes : {uint64_t{64}, uint64_t{1} << 26}) {
    const std::string chosen = table.choose(CollectiveKind::kBroadcast, bytes, false)->name;
    EXPECT_EQ(chosen, "tree");
    EXPECT_NE(table.choose(CollectiveKind::kAllToAll, bytes, false), nullptr);
  }
}

TEST(Rates, ComeBackFromTheirFileAndRefuseOthers) {
  Calibration calibration;
  calibration.measured = "measured here";
  calibration.rates[kThreadRates].hop_us = 7.5;
  const Calibration back = parse_rates(write_rates(calibration), "file");
  EXPECT_EQ(back.measured, "measured here");
  EXPECT_EQ(back.rates.at(kThreadRates).hop_us, 7.5);
  for (const char* bad :
       {"", "weft rates 2\n", "weft rates 1\nx\nhop_us 1\n",
        "weft rates 1\nx\n[threads]\nhop_us x\n", "weft rates 1\nx\n[threads]\nhop_us -1\n",
        "weft rates 1\nx\n[threads]\nspeed 1\n"})
    EXPECT_THROW(parse_rates(bad, "file"), Error) << bad;
}

TEST(Placement, PutsPipelinesHostByHostAndRingsWhereTheyClose) {
  const Machine machine = load_machine("ndv2x2");
  const auto pipeline = place_ranks(machine, 16, WorkPattern::kPipeline);
  ASSERT_EQ(pipeline.size(), 16u);
  std::vector<int> used;
  int crossings = 0;
  for (size_t r = 0; r < 16; r++) {
    used.push_back(pipeline[r].gpu);
    crossings += pipeline[r].way == PathClass::kNetwork ? 1 : 0;
  }
  std::sort(used.begin(), used.end());
  EXPECT_EQ(std::unique(used.begin(), used.end()), used.end());
  EXPECT_EQ(crossings, 1);
  EXPECT_EQ(pipeline.back().way, PathClass::kNone);
  // Of NDv2's NVLink mesh a ring of all eight exists.
  for (const PlacedRank& rank : place_ranks(load_machine("ndv2"), 8, WorkPattern::kRing))
    EXPECT_EQ(rank.way, PathClass::kNvlink);
  EXPECT_EQ(place_ranks(machine, 3, WorkPattern::kRing).size(), 3u);
  EXPECT_THROW(place_ranks(machine, 17, WorkPattern::kRing), Error);
}

}  // namespace
}  // namespace weft::test
