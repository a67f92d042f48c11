// A transformer, how its training is spread over ranks, and the sizes that follow from both. The
// formulas are those of the Megatron and ZeRO papers. Plain data and pure functions.
#pragma once

#include <string>

#include "src/workload/comm_cost.h"

namespace weft::workload {

struct Model {
  int layers = 0, hidden = 0, heads = 0, sequence = 0, vocabulary = 0;
};

enum class Recompute { kNone, kSelective, kFull };

struct Layout {
  int data = 1, tensor = 1, pipeline = 1;
  int zero = 0;                    // stage of ZeRO: 0 to 3
  bool quantized = false;          // ZeRO++, with stage 3
  bool sequence_parallel = false;  // Megatron's, over the tensor ranks
  Recompute recompute = Recompute::kNone;
  int batch = 1;                // sequences of a microbatch
  int microbatches = 1;         // of a data parallel rank, per step
  double element_bytes = 2;     // of parameters, gradients and activations
  double optimizer_bytes = 12;  // per parameter
  int ranks() const { return data * tensor * pipeline; }
};

// Of one layer 12h^2+13h; embeddings (v+s)h are apart.
double layer_parameters(const Model& model);
double parameters(const Model& model);
// Of one rank. The embeddings are shared out like the layers.
double parameters_of_rank(const Model& model, const Layout& layout);

// Floating point operations of a step of all ranks together.
double step_operations(const Model& model, const Layout& layout);

// Activations of one layer for one microbatch on one rank, bytes.
double activation_bytes(const Model& model, const Layout& layout);

// Megatron's order: tensor ranks are neighbours, then data, then pipeline.
Instances tensor_groups(const Layout& layout);
Instances data_groups(const Layout& layout);
// The pairs of ranks between two neighbouring stages. `stage`: the first; -1: of all stages.
Instances pipeline_pairs(const Layout& layout, int stage = -1);
// Those of them whose ranks are in one stage.
Instances of_stage(const Layout& layout, const Instances& all, int stage);
// Ranks of one stage.
std::vector<int> stage_ranks(const Layout& layout, int stage);

}  // namespace weft::workload
