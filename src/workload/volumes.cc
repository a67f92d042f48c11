// See volumes.h.
#include "src/workload/volumes.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft::workload {
namespace {

using Kind = CollectiveKind;

// Ranks keep neither parameters nor sums of gradients, so every microbatch gathers and reduces.
std::string per_microbatch(const char* formula, int microbatches) {
  return microbatches > 1 ? fmt::format("m ({})", formula) : formula;
}

Volume zero_plus_plus(double m, const Layout& layout, const Instances& groups) {
  Volume v;
  v.what = "data, ZeRO++";
  v.formula = per_microbatch(
      "M/2 (int8 all_gather) + 0 (second gather inside hosts) + M/4 (int4 gradients)",
      layout.microbatches);
  const double times = layout.microbatches;
  v.models = 0.75 * times;
  v.numbers = fmt::format("{:g}*{:.4g}", v.models, m);
  v.bytes = v.models * m;
  // Between hosts, hierarchical int4 all-to-alls move as much as a reduce_scatter of a quarter.
  v.calls = {{Kind::kAllGather, m / 2, times, groups},
             {Kind::kReduceScatter, m / 4, times, groups}};
  return v;
}

Volume data_volume(const Model& model, const Layout& layout) {
  const double m = parameters_of_rank(model, layout) * layout.element_bytes;
  const int n = layout.data;
  const double share = (n - 1.0) / n;
  const Instances groups = data_groups(layout);
  if (layout.zero == 3 && layout.quantized) return zero_plus_plus(m, layout, groups);
  Volume v;
  const double times = layout.microbatches;
  v.models = layout.zero == 3 ? 3 * times : 2;
  v.bytes = v.models * share * m;
  v.numbers = fmt::format("{:g}*{}/{}*{:.4g}", v.models, n - 1, n, m);
  if (layout.zero == 0) {
    v.what = "data, all_reduce";
    v.formula = "2(N-1)/N M";
    v.calls = {{Kind::kAllReduce, m, 1, groups}};
  } else if (layout.zero < 3) {
    v.what = fmt::format("data, ZeRO {}", layout.zero);
    v.formula = "(N-1)/N M (reduce_scatter) + (N-1)/N M (all_gather)";
    v.calls = {{Kind::kReduceScatter, m, 1, groups}, {Kind::kAllGather, m, 1, groups}};
  } else {
    v.what = "data, ZeRO 3";
    v.formula =
        per_microbatch("2(N-1)/N M (all_gather, forward and backward) + (N-1)/N M (reduce_scatter)",
                       layout.microbatches);
    v.calls = {{Kind::kAllGather, m, 2 * times, groups}, {Kind::kReduceScatter, m, times, groups}};
  }
  return v;
}

Volume tensor_volume(const Model& model, const Layout& layout) {
  const int t = layout.tensor;
  const double a =
      static_cast<double>(layout.batch) * model.sequence * model.hidden * layout.element_bytes;
  const double layers = static_cast<double>(model.layers) / layout.pipeline;
  // Forward two, backward two; recomputing repeats the two of forward.
  const int each = layout.recompute == Recompute::kFull ? 6 : 4;
  const double times = each * layers * layout.microbatches;
  Volume v;
  v.bytes = times * 2 * (t - 1) / t * a;
  v.numbers =
      fmt::format("{}*{:g}*{}*2*{}/{}*{:.4g}", each, layers, layout.microbatches, t - 1, t, a);
  const Instances groups = tensor_groups(layout);
  if (layout.sequence_parallel) {
    v.what = "tensor and sequence";
    v.formula =
        fmt::format("{} l/p m ((t-1)/t bsh (all_gather) + (t-1)/t bsh (reduce_scatter))", each);
    v.calls = {{Kind::kAllGather, a, times, groups}, {Kind::kReduceScatter, a, times, groups}};
  } else {
    v.what = "tensor";
    v.formula = fmt::format("{} l/p m 2(t-1)/t bsh", each);
    v.calls = {{Kind::kAllReduce, a, times, groups}};
  }
  return v;
}

Volume pipeline_volume(const Model& model, const Layout& layout) {
  const double a = static_cast<double>(layout.batch) * model.sequence * model.hidden *
                   layout.element_bytes / (layout.sequence_parallel ? layout.tensor : 1);
  Volume v;
  v.what = "pipeline, a middle stage";
  v.formula = layout.sequence_parallel ? "2 m bsh/t" : "2 m bsh";
  v.numbers = fmt::format("2*{}*{:.4g}", layout.microbatches, a);
  v.bytes = 2.0 * layout.microbatches * a;
  v.calls = {{Kind::kSendRecv, a, 2.0 * layout.microbatches, pipeline_pairs(layout)}};
  return v;
}

}  // namespace

std::vector<Volume> volumes(const Model& model, const Layout& layout) {
  std::vector<Volume> all;
  if (layout.data > 1) all.push_back(data_volume(model, layout));
  if (layout.tensor > 1) all.push_back(tensor_volume(model, layout));
  if (layout.pipeline > 1) all.push_back(pipeline_volume(model, layout));
  return all;
}

std::vector<Memory> memory(const Model& model, const Layout& layout) {
  const double s = parameters_of_rank(model, layout), e = layout.element_bytes;
  const double k = layout.optimizer_bytes, n = layout.data;
  std::vector<Memory> all;
  all.push_back(
      {"parameters", layout.zero >= 3 ? "eS/N" : "eS", e * s / (layout.zero >= 3 ? n : 1)});
  all.push_back(
      {"gradients", layout.zero >= 2 ? "eS/N" : "eS", e * s / (layout.zero >= 2 ? n : 1)});
  all.push_back(
      {"optimizer", layout.zero >= 1 ? "KS/N" : "KS", k * s / (layout.zero >= 1 ? n : 1)});
  const double layer = activation_bytes(model, layout);
  const char* formula = layout.recompute == Recompute::kFull
                            ? (layout.sequence_parallel ? "2sbh/t" : "2sbh")
                        : layout.sequence_parallel
                            ? (layout.recompute == Recompute::kNone ? "sbh/t(34+5as/h)" : "34sbh/t")
                        : layout.recompute == Recompute::kNone ? "sbh(10+24/t+5as/(ht))"
                                                               : "sbh(10+24/t)";
  // The first stage of 1F1B keeps as many microbatches as there are stages.
  const int held = std::min(layout.microbatches, layout.pipeline);
  all.push_back({"activations, first stage", fmt::format("l/p min(m,p) {}", formula),
                 layer * model.layers / layout.pipeline * held});
  return all;
}

double time_us(const Volume& volume, CommCosts& costs) {
  double us = 0;
  for (const Volume::Call& call : volume.calls)
    us += call.times * costs.cost(call.kind, call.bytes, call.instances).us;
  return us;
}

}  // namespace weft::workload
