// See latency.h.
#include "algorithms/synth/latency.h"

#include <algorithm>
#include <cmath>

#include "algorithms/synth/latency_race.h"
#include "src/base/error.h"

namespace weft {
namespace {

constexpr int kChunkCounts[] = {1, 2, 4, 8, 16, 32};

bool single_block(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce;
}

class Planner {
 public:
  Planner(const Machine& machine, const Collective& collective, double bytes,
          const LatencyOptions& options)
      : collective_(collective), bytes_(bytes), options_(options) {
    const int n = collective.nranks;
    blocks_ = single_block(collective.kind) ? 1 : n;
    if (collective.kind != CollectiveKind::kAllReduce)
      graphs_.push_back(hop_graph(machine, n, collective.reduces()));
    else
      graphs_ = {hop_graph(machine, n), hop_graph(machine, n, true)};
    several_hosts_ = std::any_of(graphs_[0].host.begin(), graphs_[0].host.end(),
                                 [&](int host) { return host != graphs_[0].host[0]; });
  }

  std::vector<LatencyPlan> plans() const {
    std::vector<LatencyPlan> found;
    double best = 0;
    for (const int chunks : kChunkCounts) {
      const int64_t transfers = int64_t{blocks_} * chunks * (collective_.nranks - 1);
      if (chunks > 1 && (transfers > options_.most_transfers || bytes_ < blocks_ * chunks)) break;
      double fastest = plan(found, chunks, false);
      if (several_hosts_) fastest = std::min(fastest, plan(found, chunks, true));
      if (chunks > 1 && fastest > best * (1 - options_.worthwhile)) break;
      best = fastest;
    }
    // Fewer chunks unless more are worth it.
    std::stable_sort(found.begin(), found.end(), [](const LatencyPlan& a, const LatencyPlan& b) {
      return a.predicted_us < b.predicted_us;
    });
    const auto lean = std::min_element(
        found.begin(), found.end(), [&](const LatencyPlan& a, const LatencyPlan& b) {
          const auto cost = [&](const LatencyPlan& p) {
            const bool near = p.predicted_us <= found[0].predicted_us * (1 + options_.worthwhile);
            return near ? p.routing.chunks : INT32_MAX;
          };
          return cost(a) < cost(b);
        });
    std::rotate(found.begin(), lean, lean + 1);
    return found;
  }

 private:
  // Adds a plan; returns how long it takes.
  double plan(std::vector<LatencyPlan>& found, int chunks, bool once_per_host) const {
    LatencyPlan plan{{collective_, chunks, {}, {}}, 0};
    for (size_t half = 0; half < graphs_.size(); half++) {
      const Timetable table = race_for(graphs_[half], chunks, once_per_host);
      plan.predicted_us += table.end_us + (slices(chunks) - 1) * table.busiest_us;
      auto& transfers = half == 0 ? plan.routing.transfers : plan.routing.reduction;
      for (const Delivery& d : table.deliveries) {
        const Hop& hop = graphs_[half].hops[d.hop];
        transfers.push_back({d.piece, hop.from, hop.to, hop.links, d.begin_us});
      }
      std::stable_sort(
          transfers.begin(), transfers.end(),
          [](const Transfer& a, const Transfer& b) { return a.begin_us < b.begin_us; });
    }
    found.push_back(std::move(plan));
    return found.back().predicted_us;
  }

  double slices(int chunks) const {
    const double chunk = bytes_ / blocks_ / chunks;
    return std::clamp(std::ceil(chunk / options_.slice_bytes), 1.0,
                      static_cast<double>(options_.most_slices));
  }

  Timetable race_for(const HopGraph& graph, int chunks, bool once_per_host) const {
    std::vector<int32_t> origin;
    for (int piece = 0; piece < blocks_ * chunks; piece++)
      origin.push_back(blocks_ == 1 ? collective_.root : piece / chunks);
    const double piece_bytes = bytes_ / blocks_ / chunks / slices(chunks);
    return race(graph, origin, piece_bytes, {once_per_host});
  }

  const Collective collective_;
  const double bytes_;
  const LatencyOptions options_;
  int blocks_ = 1;
  bool several_hosts_ = false;
  std::vector<HopGraph> graphs_;  // all_reduce: to gather, and turned round to reduce
};

}  // namespace

std::vector<LatencyPlan> latency_plans(const Machine& machine, const Collective& collective,
                                       double bytes, const LatencyOptions& options) {
  switch (collective.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
      return Planner(machine, collective, bytes, options).plans();
    default:
      fail(ncclInvalidArgument, "the latency engine does not plan {}", name(collective.kind));
  }
}

}  // namespace weft
