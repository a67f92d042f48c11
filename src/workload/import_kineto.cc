// graph_from_kineto() of import.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "src/workload/check.h"
#include "src/workload/import.h"
#include "src/workload/kineto_kernels.h"

namespace weft::workload {
namespace {

constexpr double kLaunchGap = 5;  // us; shorter gaps between kernels belong to them
constexpr double kTouch = 1;      // us; what begins this early after something may have waited

// Time in which some collective runs and no compute.
void measure_trace(const std::vector<Kernel>& kernels, SeenTrace& seen) {
  std::map<double, std::pair<int, int>> changes;  // compute, communication
  for (const Kernel& kernel : kernels) {
    (kernel.comm ? seen.collectives : seen.kernels)++;
    auto& [compute_begin, comm_begin] = changes[kernel.begin];
    (kernel.comm ? comm_begin : compute_begin)++;
    auto& [compute_end, comm_end] = changes[kernel.end];
    (kernel.comm ? comm_end : compute_end)--;
  }
  int compute = 0, comm = 0;
  double last = changes.begin()->first;
  for (const auto& [at, change] : changes) {
    if (comm > 0 && compute == 0) seen.exposed_us += at - last;
    last = at;
    compute += change.first;
    comm += change.second;
  }
  seen.us = last - changes.begin()->first;
}

// The groups of all ranks, if this rank's group is a piece of a regular division of them: every
// `stride`-th rank of a row of neighbours. All ranks are taken to do the same.
Instances instances_of(const std::vector<int>& ranks, int world) {
  const auto size = static_cast<int>(ranks.size());
  if (size < 2 || size >= world) return {ranks};
  const int stride = ranks[1] - ranks[0];
  for (int k = 1; k < size; k++)
    if (stride < 1 || ranks[static_cast<size_t>(k)] != ranks[0] + k * stride) return {ranks};
  const int row = size * stride;
  if (world % row != 0 || ranks[0] % row >= stride) return {ranks};
  Instances all;
  for (int begin = 0; begin < world; begin += row)
    for (int first = begin; first < begin + stride; first++) {
      std::vector<int>& one = all.emplace_back();
      for (int k = 0; k < size; k++) one.push_back(first + k * stride);
    }
  return all;
}

// Compute in pieces. A piece ends where a collective waits for it, and where compute waited. A
// collective waits for the compute that was launched before it and had ended when it began. Compute
// that begins after a gap waits for the collectives that ended in the gap; what is left of the gap
// is the host's.
class KinetoPieces {
 public:
  KinetoPieces(const std::vector<Kernel>& kernels, Graph& graph) : graph_(graph) {
    for (const Kernel& kernel : kernels) (kernel.comm ? comms_ : computes_).push_back(&kernel);
    numbers_.assign(comms_.size(), -1);
    for (const Kernel* comm : comms_) waits_for_.push_back(last_before(*comm));
  }

  void build() {
    add_collectives(-1);
    double ended = computes_.empty() ? 0 : computes_.front()->begin;
    for (size_t i = 0; i < computes_.size(); i++) {
      const Kernel& kernel = *computes_[i];
      double since = ended;
      const std::vector<int> waited = ended_in_gap(ended, kernel.begin, since);
      const double gap = kernel.begin - ended;
      const double busy = std::max(0.0, kernel.end - std::max(ended, kernel.begin));
      if (piece_ >= 0 && !closed_ && waited.empty() && gap <= kLaunchGap)
        graph_.ops[static_cast<size_t>(piece_)].us += busy + std::max(0.0, gap);
      else
        begin_piece(waited, kernel.begin - since, busy);
      ended = std::max(ended, kernel.end);
      closed_ = add_collectives(static_cast<int>(i));
    }
  }

 private:
  int last_before(const Kernel& comm) const {
    int last = -1;
    for (size_t i = 0; i < computes_.size(); i++)
      if (computes_[i]->launched <= comm.launched && computes_[i]->end <= comm.begin + kTouch)
        last = static_cast<int>(i);
    return last;
  }

  std::vector<int> ended_in_gap(double from, double to, double& since) const {
    std::vector<int> found;
    for (size_t m = 0; m < comms_.size(); m++)
      if (to - from >= 0.5 && numbers_[m] >= 0 && comms_[m]->end > from && comms_[m]->end <= to) {
        found.push_back(numbers_[m]);
        since = std::max(since, comms_[m]->end);
      }
    return found;
  }

  void begin_piece(const std::vector<int>& waited, double host_us, double busy) {
    std::vector<int> after = waited;
    if (piece_ >= 0) after.push_back(piece_);
    if (host_us > kLaunchGap) {
      Op host;
      host.stream = kHostStream;
      host.us = host_us;
      host.after = after;
      after.push_back(add(std::move(host)));
    }
    Op op;
    op.us = busy;
    op.stream = kComputeStream;
    op.after = after;
    piece_ = add(std::move(op));
  }

  // The collective before it in its stream, if it is an operation already; -1: none.
  int before_in_stream(size_t m) const {
    int before = -1;
    for (size_t k = 0; k < m; k++)
      if (comms_[k]->stream == comms_[m]->stream && numbers_[k] >= 0) before = static_cast<int>(k);
    return before;
  }

  // How long it could have run but did not: it was not launched yet, or had no room.
  double delay_of(size_t m) const {
    double could = comms_[m]->begin;
    if (waits_for_[m] >= 0) could = computes_[static_cast<size_t>(waits_for_[m])]->end;
    if (const int before = before_in_stream(m); before >= 0)
      could = waits_for_[m] >= 0 ? std::max(could, comms_[static_cast<size_t>(before)]->end)
                                 : comms_[static_cast<size_t>(before)]->end;
    return comms_[m]->begin - could;
  }

  // Those that wait for this kernel. Returns whether there are some.
  bool add_collectives(int kernel) {
    bool some = false;
    for (size_t m = 0; m < comms_.size(); m++) {
      if (waits_for_[m] != kernel) continue;
      Op op;
      op.collective = comms_[m]->kind;
      op.bytes = comms_[m]->bytes;
      op.us = comms_[m]->end - comms_[m]->begin;
      op.group = group_of(graph_, fmt::format("g{}", graph_.groups.size()),
                          instances_of(comms_[m]->ranks, graph_.nranks));
      op.stream = fmt::format("s{}", comms_[m]->stream);
      op.phase = Phase::kGradient;
      if (piece_ >= 0) op.after = {piece_};
      if (const double late = delay_of(m); late > kTouch) {
        Op host;
        host.stream = fmt::format("{}-{}", kHostStream, op.stream);
        host.us = late;
        host.after = op.after;
        if (const int before = before_in_stream(m); before >= 0)
          host.after.push_back(numbers_[static_cast<size_t>(before)]);
        op.after.push_back(add(std::move(host)));
      }
      numbers_[m] = add(std::move(op));
      some = true;
    }
    return some;
  }

  int add(Op op) {
    const char* kind = op.collective ? "c" : is_host_stream(op.stream) ? "h" : "k";
    op.id = fmt::format("{}{}", kind, graph_.ops.size());
    graph_.ops.push_back(std::move(op));
    return static_cast<int>(graph_.ops.size()) - 1;
  }

  Graph& graph_;
  std::vector<const Kernel*> computes_, comms_;
  std::vector<int> waits_for_;  // per collective: a compute kernel, -1: none
  std::vector<int> numbers_;    // per collective: its operation
  int piece_ = -1;              // the operation of the compute so far
  bool closed_ = false;         // it has an end that something waits for
};

}  // namespace

SeenTrace graph_from_kineto(std::string_view text, const std::string& where) {
  const KinetoStep step = read_kineto(text, where);
  SeenTrace seen;
  Graph& graph = seen.graph;
  graph.name = where;
  graph.source = "PyTorch profiler";
  graph.nranks = step.world;
  graph.places.emplace_back(static_cast<size_t>(step.world));
  std::iota(graph.places.front().begin(), graph.places.front().end(), 0);
  measure_trace(step.kernels, seen);
  KinetoPieces(step.kernels, graph).build();
  check_graph(graph, where);
  set_origins(graph);
  return seen;
}

}  // namespace weft::workload
