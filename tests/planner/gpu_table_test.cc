// Plans of ranks that share a GPU: rules, and what a calibration says otherwise.
#include <gtest/gtest.h>

#include <memory>

#include "algorithms/catalogue/catalogue.h"
#include "algorithms/generators/generators.h"
#include "src/planner/plan_chooser.h"
#include "src/planner/rates_file.h"
#include "src/planner/table_builder.h"

namespace weft::test {
namespace {

constexpr auto kSummed = CollectiveKind::kAllReduce;

PlanCall all_reduce_of(size_t bytes) { return PlanCall::of_size({kSummed, 4, 0}, bytes); }

// Eight threads on one GPU. Rules take packets for the reduce, and loads for the all_gather.
TEST(GpuTable, TakesWhatIsFasterOnThisMachineOnceThatIsMeasured) {
  constexpr uint64_t kReduced = 256 << 10, kGathered = 1 << 20;
  TableRequest request;
  request.nranks = 8;
  request.setting.cores = 1;
  request.setting.on_gpus = request.setting.one_process = true;
  request.rates = default_rates(kGpuRates);
  request.measured = true;
  const auto factors = [&](double packets, double loads) {
    for (const auto& [kind, bytes] :
         {std::pair{CollectiveKind::kReduce, kReduced}, {CollectiveKind::kAllGather, kGathered}}) {
      request.factors[factor_key(kind, kOneRound.name)] = {
          {8, static_cast<double>(bytes), packets}};
      request.factors[factor_key(kind, kPeerMemory.name)] = {
          {8, static_cast<double>(bytes), loads}};
    }
  };
  const auto chosen = [&](CollectiveKind kind, uint64_t bytes, size_t packet_bytes = 1 << 20) {
    const SelectionTable table = build_gpu_table(request, packet_bytes);
    EXPECT_EQ(table.measured, request.measured && request.setting.cores == 1);
    EXPECT_EQ(SelectionTable::decode(table.encode()), table);
    return table.choose(kind, bytes, false)->name;
  };
  EXPECT_EQ(chosen(CollectiveKind::kReduce, kReduced), kOneRound.name);
  EXPECT_EQ(chosen(CollectiveKind::kAllGather, kGathered), kPeerMemory.name);
  factors(10, 0.1);
  EXPECT_EQ(chosen(CollectiveKind::kReduce, kReduced), kPeerMemory.name);
  EXPECT_EQ(chosen(CollectiveKind::kAllGather, kGathered), kPeerMemory.name);
  factors(0.1, 10);
  EXPECT_EQ(chosen(CollectiveKind::kReduce, kReduced), kOneRound.name);
  EXPECT_EQ(chosen(CollectiveKind::kAllGather, kGathered), kOneRound.name);
  EXPECT_EQ(chosen(CollectiveKind::kAllGather, kGathered, 0), kPeerMemory.name) << "no packets";
  EXPECT_EQ(chosen(CollectiveKind::kAllGather, 16 * kGathered), kPeerMemory.name) << "too large";
  // The rules, again, for other GPUs and for other ranks.
  factors(10, 0.1);
  request.setting.cores = 2;
  EXPECT_EQ(chosen(CollectiveKind::kReduce, kReduced), kOneRound.name);
  request.setting.cores = 1;
  request.measured = false;
  EXPECT_EQ(chosen(CollectiveKind::kReduce, kReduced), kOneRound.name);
  request.measured = true;
  // All_reduces were not measured.
  request.factors.erase(factor_key(CollectiveKind::kReduce, kOneRound.name));
  EXPECT_EQ(chosen(CollectiveKind::kAllReduce, 1 << 10), kOneShot.name);
  EXPECT_EQ(chosen(CollectiveKind::kReduce, kReduced), kOneRound.name);
}

// Ranks that share a GPU go by rules, unless this machine has been measured.
TEST(GpuTable, DecidesOnceRanksLikeTheseAreMeasured) {
  for (const bool measured : {false, true}) {
    PlanChooser chooser({}, 0, "test", std::make_shared<const ImportedSchedules>());
    weft::Placement placement;
    placement.peer_memory = placement.lanes = true;
    chooser.place(placement);
    TableRequest request;
    request.nranks = 4;
    request.setting.on_gpus = true;
    request.rates = default_rates(kGpuRates);
    request.setting.cores = 1;
    request.measured = measured;
    // Loads are better for all_reduces of 4 KiB and more.
    request.factors[factor_key(kSummed, kOneShot.name)] = {{4, 1 << 11, 1}, {4, 1 << 12, 100}};
    request.factors[factor_key(kSummed, kPeerMemory.name)] = {{4, 1 << 11, 100},
                                                              {4, 1 << 12, 0.01}};
    CommunicatorPlans plans;
    plans.table = build_gpu_table(request, Config{}.packet_bytes);
    chooser.agree(plans);
    for (const size_t bytes : {size_t{0}, size_t{1000}, size_t{4096}, size_t{5000}}) {
      const Choice choice = chooser.choose(all_reduce_of(bytes));
      const bool loads = measured && bytes >= 4096;
      EXPECT_EQ(choice.path, loads ? PlanPath::kLoadStore : PlanPath::kPackets) << bytes;
      EXPECT_STREQ(choice.name, loads ? "peer_memory" : "one_shot") << bytes;
    }
    // Where measured times say the same as the rules, these know the limit. The most that a rank
    // sends in packets is three arrays.
    const size_t most = Config{}.packet_bytes / 3 / 4 * 4;
    request.factors.clear();
    request.factors[factor_key(kSummed, kOneShot.name)] = {{4, 1, 0.01}};
    request.factors[factor_key(kSummed, kPeerMemory.name)] = {{4, 1, 100}};
    plans.table = build_gpu_table(request, Config{}.packet_bytes);
    chooser.agree(plans);
    EXPECT_EQ(chooser.choose(all_reduce_of(most + 8)).path, PlanPath::kLoadStore);
  }
}

}  // namespace
}  // namespace weft::test
