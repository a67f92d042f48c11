// See layer_size.h.
#include "src/workload/layer_size.h"

namespace weft::workload {

LayerSize size_of_layer(const Training& training) {
  const Model& model = training.model;
  const Layout& layout = training.layout;
  LayerSize size;
  size.tokens = static_cast<double>(layout.batch) * model.sequence;
  size.parameters =
      training.layer_parameters > 0 ? training.layer_parameters : layer_parameters(model);
  const double us_per_operation = 1 / (training.tflops * 1e6);
  const double dense = 2 * size.tokens * size.parameters / layout.tensor * us_per_operation;
  const double scores =
      4 * size.tokens * model.sequence * model.hidden / layout.tensor * us_per_operation;
  size.attention_us = dense * training.attention_share + scores;
  size.mlp_us = dense * (1 - training.attention_share);
  size.context = scores / size.attention_us;
  size.activation = size.tokens * model.hidden * layout.element_bytes;
  return size;
}

}  // namespace weft::workload
