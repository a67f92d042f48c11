// Volumes and memory against tables that were calculated by hand.
#include "src/workload/volumes.h"

#include <gtest/gtest.h>

#include "algorithms/catalogue/catalogue.h"
#include "src/workload/training.h"

namespace weft::workload {
namespace {

constexpr Model kGpt3{96, 12288, 96, 2048, 50257};
constexpr Model kTiny{2, 4, 2, 8, 10};

TEST(Volume, ParametersAreThoseOfGpt3) {
  // 12*4^2 + 13*4 = 244 a layer; (10+8)*4 = 72 for the embeddings.
  EXPECT_DOUBLE_EQ(layer_parameters(kTiny), 244);
  EXPECT_DOUBLE_EQ(parameters(kTiny), 2 * 244 + 72);
  EXPECT_DOUBLE_EQ(layer_parameters(kGpt3), 1812099072);
  EXPECT_DOUBLE_EQ(parameters(kGpt3), 174604234752);
}

TEST(Volume, OperationsAreThoseOfMegatron) {
  Layout layout;
  layout.recompute = Recompute::kFull;
  const double s = 2048, l = 96, h = 12288, v = 50257;
  // 96 B s l h^2 (1 + s/6h + v/16lh)
  EXPECT_NEAR(step_operations(kGpt3, layout),
              96 * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h)), 1e9);
  layout.recompute = Recompute::kNone;
  EXPECT_NEAR(step_operations(kGpt3, layout),
              72 * s * l * h * h * (1 + s / (6 * h)) + 6 * s * h * v, 1e9);
}

TEST(Volume, DataParallelRanksSendTwiceOrThreeTimesTheModel) {
  Layout layout;
  layout.data = 4;
  const double m = 560 * 2;  // bytes of the tiny model
  struct {
    int zero;
    double models, bytes;
  } const rows[] = {
      {0, 2, 2 * 0.75 * m}, {1, 2, 2 * 0.75 * m}, {2, 2, 2 * 0.75 * m}, {3, 3, 3 * 0.75 * m}};
  for (const auto& row : rows) {
    layout.zero = row.zero;
    const auto all = volumes(kTiny, layout);
    ASSERT_EQ(all.size(), 1u);
    EXPECT_DOUBLE_EQ(all[0].bytes, row.bytes) << row.zero;
    EXPECT_DOUBLE_EQ(all[0].models, row.models) << row.zero;
  }
}

TEST(Volume, ZeroPlusPlusTakesThreeModelsToThreeQuarters) {
  Layout layout;
  layout.data = 384;
  layout.zero = 3;
  EXPECT_DOUBLE_EQ(volumes(kGpt3, layout)[0].models, 3);
  layout.quantized = true;
  const Volume quantized = volumes(kGpt3, layout)[0];
  EXPECT_DOUBLE_EQ(quantized.models, 0.75);
  EXPECT_DOUBLE_EQ(quantized.bytes, 0.75 * 174604234752 * 2);
}

// The training graph of the same layout moves the same bytes; embeddings are not in the graph.
TEST(Volume, AgreesWithTheGraphOfATrainingStep) {
  for (int zero = 0; zero < 4; zero++) {
    Layout layout;
    layout.data = 4;
    layout.zero = zero;
    layout.microbatches = 3;
    Model model{2, 64, 4, 16, 0};
    double predicted = 0, issued = 0;
    const std::vector<Volume> all = volumes(model, layout);
    for (const Volume::Call& call : all[0].calls) predicted += call.times * call.bytes;
    Training training;
    training.model = model;
    training.layout = layout;
    training.tflops = 1;
    training.gradient_bytes = layout.element_bytes;
    const Graph graph = training_graph(training);
    for (const Op& op : graph.ops)
      if (op.collective) issued += op.bytes;
    const double embeddings = parameters(model) / (model.layers * layer_parameters(model));
    EXPECT_NEAR(predicted, issued * embeddings, 1e-6 * predicted) << "ZeRO " << zero;
  }
}

TEST(Volume, TensorRanksAllReduceFourTimesALayer) {
  Layout layout;
  layout.tensor = 8;
  layout.pipeline = 4;
  layout.microbatches = 2;
  const double a = 2048.0 * 12288 * 2;
  auto all = volumes(kGpt3, layout);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_DOUBLE_EQ(all[0].bytes, 4 * 24 * 2 * 2 * 7.0 / 8 * a);
  EXPECT_DOUBLE_EQ(all[1].bytes, 2 * 2 * a);  // forward and backward of two microbatches
  layout.sequence_parallel = true;
  all = volumes(kGpt3, layout);
  EXPECT_DOUBLE_EQ(all[0].bytes, 4 * 24 * 2 * 2 * 7.0 / 8 * a);  // the same volume
  EXPECT_EQ(all[0].calls.size(), 2u);                            // as two collectives
  EXPECT_DOUBLE_EQ(all[1].bytes, 2 * 2 * a / 8);
  layout.recompute = Recompute::kFull;
  EXPECT_DOUBLE_EQ(volumes(kGpt3, layout)[0].bytes, 6 * 24 * 2 * 2 * 7.0 / 8 * a);
}

TEST(Volume, MemoryFollowsTheStagesOfZero) {
  Layout layout;
  layout.data = 4;
  const double s = 560, k = 12;
  const double expected[] = {(2 + 2 + k) * s, (2 + 2 + k / 4) * s, (2 + 2.0 / 4 + k / 4) * s,
                             (4 + k) * s / 4};
  for (int zero = 0; zero < 4; zero++) {
    layout.zero = zero;
    double all = 0;
    for (const Memory& each : memory(kTiny, layout))
      if (each.what.find("activations") == std::string::npos) all += each.bytes;
    EXPECT_DOUBLE_EQ(all, expected[zero]) << zero;
  }
}

TEST(Volume, ActivationsAreThoseOfKorthikanti) {
  const double sbh = 2048.0 * 12288, as_h = 5.0 * 96 * 2048 / 12288;  // 5as/h = 80
  Layout layout;
  EXPECT_DOUBLE_EQ(as_h, 80);
  EXPECT_DOUBLE_EQ(activation_bytes(kGpt3, layout), sbh * (34 + 80));
  layout.tensor = 8;
  EXPECT_DOUBLE_EQ(activation_bytes(kGpt3, layout), sbh * (10 + 24.0 / 8 + 80.0 / 8));
  layout.sequence_parallel = true;
  EXPECT_DOUBLE_EQ(activation_bytes(kGpt3, layout), sbh / 8 * (34 + 80));
  layout.recompute = Recompute::kSelective;
  EXPECT_DOUBLE_EQ(activation_bytes(kGpt3, layout), sbh / 8 * 34);
  layout.recompute = Recompute::kFull;
  EXPECT_DOUBLE_EQ(activation_bytes(kGpt3, layout), sbh / 8 * 2);
}

TEST(Volume, TimeOnAMachineIsThatOfItsLinks) {
  // Two hosts of 8 GPUs with a NIC of 25 GB/s each: pairs of GPUs across hosts reduce and gather.
  const Machine machine = load_machine("dgx-a100x2");
  Layout layout;
  layout.data = 2;
  layout.tensor = 8;
  layout.zero = 1;
  CommCosts costs(machine);
  const Volume data = volumes(kGpt3, layout)[0];
  const double each_way = data.bytes / 2;  // per collective
  EXPECT_NEAR(time_us(data, costs), 2 * each_way / 25e3, 0.02 * 2 * each_way / 25e3);
}

}  // namespace
}  // namespace weft::workload
