// See training.h.
#include "src/workload/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "src/base/error.h"
#include "src/workload/layer_size.h"
#include "src/workload/pipeline_order.h"

namespace weft::workload {
namespace {

using Kind = CollectiveKind;

// Adds operations in the order in which they are issued.
class StepBuilder {
 public:
  explicit StepBuilder(const Training& training) : t_(training), l_(training.layout) {
    graph_.nranks = l_.ranks();
    graph_.sms = t_.sms;
    graph_.comm_sms = t_.comm_sms;
    graph_.split_us = t_.split_us;
    graph_.batch = l_.batch;
    graph_.places.emplace_back(static_cast<size_t>(graph_.nranks));
    std::iota(graph_.places.front().begin(), graph_.places.front().end(), 0);
    size_ = size_of_layer(training);
    layers_ = t_.model.layers / l_.pipeline;
    dw_.resize(static_cast<size_t>(t_.model.layers));
  }

  Graph build() {
    for (int stage = 0; stage < l_.pipeline; stage++) gather_parameters(stage);
    if (t_.backward_first) {
      for (int stage = 0; stage < l_.pipeline; stage++) {
        backward(stage, 0);
        synchronize(stage);
        forward(stage, 1);
      }
      return std::move(graph_);
    }
    for (const Turn& turn : pipeline_turns(l_.pipeline, l_.microbatches, t_.gpipe)) {
      if (turn.backward) {
        backward(turn.stage, turn.microbatch);
      } else {
        forward(turn.stage, turn.microbatch);
      }
    }
    for (int stage = 0; stage < l_.pipeline; stage++) synchronize(stage);
    for (int stage = 0; stage < l_.pipeline; stage++) optimize(stage);
    return std::move(graph_);
  }

 private:
  int add(Op op) {
    op.shares.clear();
    graph_.ops.push_back(std::move(op));
    return static_cast<int>(graph_.ops.size()) - 1;
  }

  int compute(const std::string& id, double us, int stage, Phase phase, std::vector<int> after) {
    Op op;
    op.id = id;
    op.us = us;
    op.place = place_of(graph_, stage_ranks(l_, stage));
    op.phase = phase;
    op.layer = layer_;
    op.microbatch = microbatch_;
    op.stream = kComputeStream;
    op.axis = phase == Phase::kOptimizer ? "" : "tokens";
    op.floor_us = us * std::min(1.0, t_.min_tokens / size_.tokens);
    std::erase(after, -1);
    op.after = std::move(after);
    return add(std::move(op));
  }

  int communicate(const std::string& id, Kind kind, double bytes, const char* group,
                  const Instances& instances, Phase phase, std::vector<int> after,
                  const char* stream) {
    Op op;
    op.id = id;
    op.collective = kind;
    op.bytes = bytes;
    op.group = group_of(graph_, group, instances);
    op.phase = phase;
    op.layer = layer_;
    op.microbatch = microbatch_;
    op.stream = t_.blocking && kind != Kind::kSendRecv ? kComputeStream : stream;
    op.axis = phase == Phase::kForward || phase == Phase::kInputGradient ? "tokens" : "";
    std::erase(after, -1);
    op.after = std::move(after);
    return add(std::move(op));
  }

  int on_tensor(const std::string& id, int stage, Phase phase, int after) {
    if (l_.tensor < 2) return after;
    return communicate(id, Kind::kAllReduce, size_.activation, fmt::format("tp{}", stage).c_str(),
                       of_stage(l_, tensor_groups(l_), stage), phase, {after}, "tp");
  }

  int on_data(const std::string& id, Kind kind, double bytes, int stage, Phase phase,
              std::vector<int> after, const char* stream) {
    return communicate(id, kind, bytes, fmt::format("dp{}", stage).c_str(),
                       of_stage(l_, data_groups(l_), stage), phase, std::move(after), stream);
  }

  bool is_moe(int layer) const {
    return t_.moe_every > 0 && layer % t_.moe_every == t_.moe_every - 1;
  }

  // Of a layer on one rank, without experts.
  double dense_parameters(int layer) const {
    return size_.parameters / l_.tensor * (is_moe(layer) ? t_.attention_share : 1);
  }

  // Attention looks at all tokens before.
  void in_context(int op) { graph_.ops[static_cast<size_t>(op)].context = size_.context; }

  double quantize_us(double bytes) const {
    return t_.quantize_gbps > 0 ? bytes / (t_.quantize_gbps * 1e3) : 0;
  }

  // ZeRO 3: the layer's parameters, before they are used.
  int gathered(const std::string& id, int layer, int stage, bool backward) {
    if (l_.zero < 3) return -1;
    const double bytes = dense_parameters(layer) * l_.element_bytes;
    if (!l_.quantized)
      return on_data(id, Kind::kAllGather, bytes, stage, Phase::kParameter, {}, "gather");
    if (!backward) {
      const int sent =
          on_data(id, Kind::kAllGather, bytes / 2, stage, Phase::kParameter, {}, "gather");
      return compute(id + "q", quantize_us(bytes), stage, Phase::kForward, {sent});
    }
    Instances hosts;
    for (int first = 0; first < graph_.nranks; first += t_.host_ranks) {
      std::vector<int> ranks(static_cast<size_t>(t_.host_ranks));
      std::iota(ranks.begin(), ranks.end(), first);
      hosts.push_back(ranks);
    }
    return communicate(id, Kind::kAllGather, bytes, "host", hosts, Phase::kParameter, {}, "gather");
  }

  int mlp_forward(const std::string& id, int stage, int after, int parameters) {
    if (!is_moe(layer_)) {
      const int done = compute(id + "m", size_.mlp_us, stage, Phase::kForward, {after, parameters});
      return on_tensor(id + "M", stage, Phase::kForward, done);
    }
    const double bytes = size_.activation * t_.expert_tokens;
    const int sent =
        on_data(id + "D", Kind::kAllToAll, bytes, stage, Phase::kForward, {after}, "ep");
    const int done =
        compute(id + "e", size_.mlp_us * t_.expert_tokens, stage, Phase::kForward, {sent});
    return on_data(id + "C", Kind::kAllToAll, bytes, stage, Phase::kForward, {done}, "ep");
  }

  void forward(int stage, int microbatch) {
    microbatch_ = microbatch;
    int at = stage > 0 ? sends_.at({stage - 1, microbatch}) : -1;
    for (int k = 0; k < layers_; k++) {
      layer_ = stage * layers_ + k;
      const std::string id = fmt::format("f{}.{}", layer_, microbatch);
      const int parameters = gathered(id + "G", layer_, stage, false);
      const int gate =
          static_cast<size_t>(layer_) < first_.size() ? first_[static_cast<size_t>(layer_)] : -1;
      at = compute(id + "a", size_.attention_us, stage, Phase::kForward, {at, parameters, gate});
      in_context(at);
      at = on_tensor(id + "A", stage, Phase::kForward, at);
      at = mlp_forward(id, stage, at, parameters);
    }
    if (stage + 1 < l_.pipeline)
      sends_[{stage, microbatch}] = communicate(
          fmt::format("p{}.{}", stage, microbatch), Kind::kSendRecv, size_.activation / l_.tensor,
          fmt::format("pp{}", stage).c_str(), pipeline_pairs(l_, stage), Phase::kForward, {at},
          fmt::format("pf{}", stage).c_str());
    finished_[{stage, microbatch}] = at;
  }

  // Input gradients of the second half of a layer, and the operations that weight gradients need.
  int mlp_backward(const std::string& id, int stage, int at, int parameters, std::vector<int>& dw) {
    const double again = l_.recompute == Recompute::kFull ? 1 : 0;
    const int incoming = at;
    if (!is_moe(layer_)) {
      at = compute(id + "m", size_.mlp_us * (1 + again), stage, Phase::kInputGradient,
                   {at, parameters});
      at = on_tensor(id + "M", stage, Phase::kInputGradient, at);
      dw.push_back(compute(id + "mw", size_.mlp_us, stage, Phase::kWeightGradient, {incoming}));
      return at;
    }
    const double bytes = size_.activation * t_.expert_tokens, us = size_.mlp_us * t_.expert_tokens;
    at = on_data(id + "C", Kind::kAllToAll, bytes, stage, Phase::kInputGradient, {at}, "ep");
    const int gradients = at;
    at = compute(id + "e", us * (1 + again), stage, Phase::kInputGradient, {at});
    at = on_data(id + "D", Kind::kAllToAll, bytes, stage, Phase::kInputGradient, {at}, "ep");
    dw.push_back(compute(id + "ew", us, stage, Phase::kWeightGradient, {gradients}));
    return at;
  }

  void backward(int stage, int microbatch) {
    microbatch_ = microbatch;
    const double again = l_.recompute == Recompute::kFull ? 1 : 0;
    int at = finished_.count({stage, microbatch}) > 0 ? finished_[{stage, microbatch}] : -1;
    if (stage + 1 < l_.pipeline) at = returns_[{stage + 1, microbatch}];
    for (int k = layers_ - 1; k >= 0; k--) {
      layer_ = stage * layers_ + k;
      const std::string id = fmt::format("b{}.{}", layer_, microbatch);
      const int parameters = gathered(id + "G", layer_, stage, true);
      std::vector<int> dw;
      at = mlp_backward(id, stage, at, parameters, dw);
      const int gradients = at;
      at = compute(id + "a", size_.attention_us * (1 + again), stage, Phase::kInputGradient,
                   {at, parameters});
      in_context(at);
      at = on_tensor(id + "A", stage, Phase::kInputGradient, at);
      dw.push_back(
          compute(id + "aw", size_.attention_us, stage, Phase::kWeightGradient, {gradients}));
      auto& all = dw_[static_cast<size_t>(layer_)];
      all.insert(all.end(), dw.begin(), dw.end());
      if (l_.zero == 3) reduce_layer(stage, dw);
    }
    if (stage > 0)
      returns_[{stage, microbatch}] = communicate(
          fmt::format("q{}.{}", stage, microbatch), Kind::kSendRecv, size_.activation / l_.tensor,
          fmt::format("pp{}", stage - 1).c_str(), pipeline_pairs(l_, stage - 1),
          Phase::kInputGradient, {at}, fmt::format("pb{}", stage).c_str());
  }

  void reduce_layer(int stage, const std::vector<int>& dw) {
    if (l_.data < 2) return;
    double bytes = dense_parameters(layer_) * t_.gradient_bytes;
    std::vector<int> after = dw;
    const std::string id =
        l_.zero == 3 ? fmt::format("g{}.{}", layer_, microbatch_) : fmt::format("g{}", layer_);
    if (l_.quantized) {
      after.push_back(compute(id + "q", quantize_us(2 * bytes), stage, Phase::kWeightGradient, dw));
      bytes /= 4;
    }
    last_.push_back(on_data(id, l_.zero == 0 ? Kind::kAllReduce : Kind::kReduceScatter, bytes,
                            stage, Phase::kGradient, after, "comm"));
    if (t_.backward_first) {
      first_.resize(static_cast<size_t>(t_.model.layers), -1);
      first_[static_cast<size_t>(layer_)] = last_.back();
    }
  }

  void synchronize(int stage) {
    microbatch_ = -1;
    if (l_.zero == 3) return;
    for (int k = layers_ - 1; k >= 0; k--) {
      layer_ = stage * layers_ + k;
      reduce_layer(stage, dw_[static_cast<size_t>(layer_)]);
    }
  }

  void gather_parameters(int stage) {
    microbatch_ = -1;
    if (l_.zero != 1 && l_.zero != 2) return;
    first_.resize(static_cast<size_t>(t_.model.layers), -1);
    for (int k = 0; k < layers_; k++) {
      layer_ = stage * layers_ + k;
      first_[static_cast<size_t>(layer_)] = on_data(fmt::format("w{}", layer_), Kind::kAllGather,
                                                    dense_parameters(layer_) * l_.element_bytes,
                                                    stage, Phase::kParameter, {}, "gather");
    }
  }

  void optimize(int stage) {
    layer_ = -1;
    std::vector<int> after;
    for (const int each : last_) {
      const auto group = static_cast<size_t>(graph_.ops[static_cast<size_t>(each)].group);
      if (graph_.groups[group].instances.front().front() / (l_.data * l_.tensor) == stage)
        after.push_back(each);
    }
    for (int k = 0; k < layers_ && l_.data < 2; k++)
      for (const int each : dw_[static_cast<size_t>(stage * layers_ + k)]) after.push_back(each);
    compute(fmt::format("opt{}", stage), t_.optimizer_us, stage, Phase::kOptimizer, after);
  }

  const Training& t_;
  const Layout& l_;
  Graph graph_;
  LayerSize size_;
  int layers_ = 0;                    // of a stage
  int layer_ = -1, microbatch_ = -1;  // of what is added
  std::vector<std::vector<int>> dw_;  // per layer, of all microbatches: they add up
  std::vector<int> first_, last_;     // what forward of a layer waits for; what the optimizer does
  std::map<std::pair<int, int>, int> sends_, returns_, finished_;  // per stage and microbatch
};

}  // namespace

Graph training_graph(const Training& training) { return StepBuilder(training).build(); }

}  // namespace weft::workload
