// See model.h.
#include "src/workload/model.h"

#include <numeric>

namespace weft::workload {

double layer_parameters(const Model& model) {
  const double h = model.hidden;
  return 12 * h * h + 13 * h;
}

double parameters(const Model& model) {
  return model.layers * layer_parameters(model) +
         (static_cast<double>(model.vocabulary) + model.sequence) * model.hidden;
}

double parameters_of_rank(const Model& model, const Layout& layout) {
  return parameters(model) / layout.tensor / layout.pipeline;
}

double step_operations(const Model& model, const Layout& layout) {
  const double h = model.hidden, s = model.sequence, l = model.layers, v = model.vocabulary;
  const double sequences = static_cast<double>(layout.batch) * layout.microbatches * layout.data;
  // 24 for each pass of forward: one forward, two backward, and one to recompute.
  const double passes = layout.recompute == Recompute::kFull ? 4 : 3;
  return sequences * s * l * h * h * 24 * passes * (1 + s / (6 * h)) +
         sequences * s * 6 * h * v;  // the logits are not recomputed
}

double activation_bytes(const Model& model, const Layout& layout) {
  const double s = model.sequence, h = model.hidden, t = layout.tensor;
  const double sbh = s * layout.batch * h, halves = layout.element_bytes / 2;
  const double attention = 5 * model.heads * s / h;
  if (layout.recompute == Recompute::kFull)
    return halves * 2 * sbh / (layout.sequence_parallel ? t : 1);
  const double kept = layout.recompute == Recompute::kSelective ? 0 : attention;
  if (layout.sequence_parallel) return halves * sbh / t * (34 + kept);
  return halves * sbh * (10 + (24 + kept) / t);
}

Instances tensor_groups(const Layout& layout) {
  Instances all;
  for (int first = 0; first < layout.ranks(); first += layout.tensor) {
    std::vector<int> ranks(static_cast<size_t>(layout.tensor));
    std::iota(ranks.begin(), ranks.end(), first);
    all.push_back(ranks);
  }
  return all;
}

Instances data_groups(const Layout& layout) {
  Instances all;
  for (int p = 0; p < layout.pipeline; p++)
    for (int t = 0; t < layout.tensor; t++) {
      std::vector<int> ranks;
      for (int d = 0; d < layout.data; d++)
        ranks.push_back((p * layout.data + d) * layout.tensor + t);
      all.push_back(ranks);
    }
  return all;
}

Instances pipeline_pairs(const Layout& layout, int stage) {
  Instances all;
  const int size = layout.data * layout.tensor;
  for (int p = 0; p + 1 < layout.pipeline; p++)
    for (int r = 0; r < size && (stage < 0 || stage == p); r++)
      all.push_back({p * size + r, (p + 1) * size + r});
  return all;
}

Instances of_stage(const Layout& layout, const Instances& all, int stage) {
  Instances mine;
  for (const auto& ranks : all)
    if (ranks.front() / (layout.data * layout.tensor) == stage) mine.push_back(ranks);
  return mine;
}

std::vector<int> stage_ranks(const Layout& layout, int stage) {
  const int size = layout.data * layout.tensor;
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), stage * size);
  return ranks;
}

}  // namespace weft::workload
