// What published systems gained, against what we predict for their configurations. The files in
// tests/data/workloads name their sources; docs/overlap.md has the table and says why they differ.
#include <gtest/gtest.h>

#include <filesystem>

#include "algorithms/catalogue/catalogue.h"
#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"
#include "src/simulator/simulator.h"
#include "src/topology/graph/network.h"
#include "src/workload/import.h"
#include "src/workload/passes.h"
#include "src/workload/volumes.h"

namespace weft::workload {
namespace {

const std::string kFolder = std::string(WEFT_TEST_DATA) + "/workloads/";

Machine hosts_of(const std::string& name, int count) {
  return replicate(load_machine(kFolder + "machines/" + name + ".json"), count);
}

struct Predicted {
  Timeline before, after;
  std::vector<Tried> tried;
  double speedup() const { return before.us / after.us; }
  double exposed(CollectiveKind kind) const {
    return 1 - after.exposed_by_kind.at(kind) / before.exposed_by_kind.at(kind);
  }
};

Predicted predict(const std::string& file, const Machine& machine, const char* pass) {
  std::string about;
  const Graph graph = load_graph(kFolder + file, about);
  CommCosts costs(machine);
  Search search(graph, costs);
  Predicted predicted{search.timeline(), {}, {}};
  if (pass != nullptr) find_pass(pass)->run(search);
  predicted.after = search.timeline();
  predicted.tried = search.tried();
  return predicted;
}

TEST(Published, CentauriGains1Point2To1Point5) {
  const Predicted got = predict("centauri-gpt-13b.json", load_machine("dgx-a100x8"), "centauri");
  EXPECT_GE(got.speedup(), 1.2);
  EXPECT_LE(got.speedup(), 1.5);
}

TEST(Published, LancetHides60To80PercentOfAllToAll) {
  const Predicted got =
      predict("lancet-gpt2-s-moe-32a100.json", hosts_of("p4d-24xlarge", 4), "lancet");
  EXPECT_GE(got.exposed(CollectiveKind::kAllToAll), 0.60);
  EXPECT_LE(got.exposed(CollectiveKind::kAllToAll), 0.80);
  EXPECT_GE(got.speedup(), 1.1);
  EXPECT_LE(got.speedup(), 1.3);
}

TEST(Published, MegatronGains2To5PercentFor70B) {
  const Predicted got = predict("megatron-70b.json", load_machine("dgx-h100x16"), "megatron");
  const double a = got.before.us, c = got.after.us;
  double b = a;  // the best with overlap-grad-reduce alone
  for (const Tried& each : got.tried)
    if (each.taken && each.what.find("overlap-grad-reduce") == 0) b = each.us;
  EXPECT_LE(b, a);
  EXPECT_LE(c, b);
  EXPECT_GE(a / c, 1.02);
  EXPECT_LE(a / c, 1.05);
}

TEST(Published, ZeroPlusPlusIs1Point8TimesAsFastAtLowBandwidth) {
  const Machine machine = hosts_of("dgx2-1nic", 24);
  const double plain = predict("zero3-18b.json", machine, nullptr).before.us;
  const double quantized = predict("zeropp-18b.json", machine, nullptr).before.us;
  EXPECT_GE(plain / quantized, 1.8);
  EXPECT_LE(plain / quantized, 2.4);  // published: up to 2.16
}

TEST(Published, TeraPipeIsFourTimesAsFastFor175B) {
  const Predicted got = predict("terapipe-175b.json", hosts_of("p3-16xlarge", 48), "terapipe");
  EXPECT_GE(got.speedup(), 4);
  EXPECT_LE(got.speedup(), 12);  // published: 5.0
}

TEST(Published, ChainingHidesTheAllReduceOfCCube) {
  const Predicted got = predict("ccube-dgx1.json", load_machine("dgx1v"), "chain");
  EXPECT_GT(got.speedup(), 1.05);
  // Reducing all and then broadcasting all takes longer than the chain.
  double apart = 0, chained = 0;
  for (const Tried& each : got.tried) {
    if (each.what == "reduce, then broadcast") apart = each.us;
    if (each.what.find("chained") != std::string::npos) chained = each.us;
  }
  EXPECT_GT(apart, got.before.us);
  EXPECT_LT(chained, got.before.us);
}

// The two halves of kChain's all_reduce along a line of ranks, each for itself.
Schedule half_of_chain(CollectiveKind kind, int n) {
  Schedule s = blank("half", {kind, n, 0}, 1, 1);
  for (int r = 0; r < n; r++) {
    Lane& lane = s.ranks[static_cast<size_t>(r)].lanes[0];
    if (kind == CollectiveKind::kReduce) {
      Operands from = {Operand::input(0)};
      if (r < n - 1) from.push_back(Operand::peer(r + 1));
      add(lane, from, {r == 0 ? Operand::output(0) : Operand::peer(r - 1)});
    } else {
      Operands to = {Operand::output(0)};
      if (r < n - 1) to.push_back(Operand::peer(r + 1));
      add(lane, {r == 0 ? Operand::input(0) : Operand::peer(r - 1)}, to);
    }
  }
  return s;
}

// On a line every step of the pipeline is one message on one link.
TEST(Published, ChainingTakes2LPlusKStepsInsteadOfTwiceLPlusK) {
  for (const auto& [depth, parts] : {std::pair{6, 24}, {3, 100}, {12, 12}}) {
    Machine line;
    line.name = "line";
    for (int i = 0; i <= depth; i++) line.nodes.push_back({"g" + std::to_string(i)});
    for (int i = 0; i < depth; i++) connect(line, i, i + 1, LinkType::kOther, 1, 0);
    SimulationOptions options;
    options.slice_bytes = 1000;  // a step takes 1 us
    options.most_slices = parts;
    options.fifo_depth = 1000;
    const auto steps = [&](const Schedule& schedule) {
      return simulate(line, schedule, 1000.0 * parts, options).time_us;
    };
    const int n = depth + 1;
    const double apart = steps(half_of_chain(CollectiveKind::kReduce, n)) +
                         steps(half_of_chain(CollectiveKind::kBroadcast, n));
    const double chained = steps(kChain.make({CollectiveKind::kAllReduce, n, 0}, false));
    // The last step of each is one link on, so it is L+K-1 and not L+K.
    EXPECT_NEAR(apart, 2 * (depth + parts - 1), 1e-6);
    EXPECT_NEAR(chained, 2 * depth + parts - 1, 1e-6);
  }
}

TEST(Published, EveryFileNamesItsSource) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() != ".json") continue;
    std::string about;
    const Graph graph = load_graph(entry.path().string(), about);
    EXPECT_FALSE(graph.source.empty()) << entry.path();
    EXPECT_FALSE(graph.name.empty()) << entry.path();
    files++;
  }
  EXPECT_GE(files, 7);
}

}  // namespace
}  // namespace weft::workload
