// The graph of a training step, from the shape of the model and the layout of the ranks: for
// published configurations, and for people who have no trace yet. Pure functions.
//
// In a file: {"training": {"layers": 80, "hidden": 8192, "heads": 64, "sequence": 4096, "data": 8,
// "tensor": 4, "pipeline": 4, "microbatches": 16, "tflops": 400, ...}}. The members are those of
// Training, Model and Layout.
#pragma once

#include "src/workload/graph.h"
#include "src/workload/json_reader.h"
#include "src/workload/model.h"

namespace weft::workload {

struct Training {
  Model model;
  Layout layout;
  double tflops = 0;                 // that a GPU reaches in the matrix products of this model
  double layer_parameters = 0;       // 0: 12h^2+13h
  double attention_share = 1.0 / 3;  // of a layer's parameters
  double gradient_bytes = 2;         // of an element while it is reduced
  int moe_every = 0;                 // every n-th layer is a mixture of experts; 0: none
  double expert_tokens = 1;          // top-k times the capacity factor
  int host_ranks = 8;                // of ZeRO++'s second gather
  double quantize_gbps = 0;          // ZeRO++: that a GPU encodes or decodes; 0: for nothing
  int min_tokens = 0;                // matrix products of fewer tokens take as long as of these
  bool gpipe = false;                // all forwards first; else 1F1B
  // Collectives wait on the stream of compute, as calls that nobody overlaps do.
  bool blocking = true;
  bool backward_first = false;  // the step begins with backward: C-Cube's view
  int sms = 0, comm_sms = 0;
  double split_us = 0, optimizer_us = 0;
};

Training read_training(const JsonReader& file);
Graph training_graph(const Training& training);

}  // namespace weft::workload
