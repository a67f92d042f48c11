// See latency.h.
#include "algorithms/synth/latency/latency.h"

#include <algorithm>
#include <cmath>

#include "algorithms/synth/latency/race.h"
#include "algorithms/synth/latency/replay.h"
#include "src/base/error.h"

namespace weft {
namespace {

constexpr double kLeastBytes = 512;  // of a chunk: less is not worth a message

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
    const int64_t enough = options_.effort * collective_.nranks * collective_.nranks;
    int64_t spent = 0;
    for (const int chunks : chunk_counts()) {
      const bool tiny = bytes_ / blocks_ / chunks < kLeastBytes;
      if (chunks > 1 && (tiny || spent > enough)) break;
      spent += plan(found, chunks, {});
      if (several_hosts_) spent += plan(found, chunks, {true, false});
      if (blocks_ == 1) spent += plan(found, chunks, {several_hosts_, true});
    }
    std::stable_sort(found.begin(), found.end(), [](const LatencyPlan& a, const LatencyPlan& b) {
      return a.predicted_us < b.predicted_us;
    });
    const double good_enough = found[0].predicted_us * (1 + options_.worthwhile);
    auto lean = found.begin();
    for (auto it = found.begin(); it != found.end() && it->predicted_us <= good_enough; ++it)
      if (it->routing.chunks < lean->routing.chunks) lean = it;
    std::rotate(found.begin(), lean, lean + 1);
    return found;
  }

 private:
  std::vector<int> chunk_counts() const {
    std::vector<int> counts = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
    if (blocks_ > 1) return counts;
    // A root does best if all other ranks of its host have equally many pieces to pass on.
    const auto& host = graphs_[0].host;
    const auto mates = std::count(host.begin(), host.end(), host[collective_.root]) - 1;
    for (auto chunks = mates; mates > 1 && chunks <= 32; chunks += mates)
      counts.push_back(static_cast<int>(chunks));
    std::sort(counts.begin(), counts.end());
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    return counts;
  }

  // Adds a plan if the rules allow one; returns the work it took.
  int64_t plan(std::vector<LatencyPlan>& found, int chunks, const RaceRules& rules) const {
    LatencyPlan plan{{collective_, chunks, {}, {}}, 0};
    int64_t spent = 0;
    std::vector<int32_t> origin;
    for (int piece = 0; piece < blocks_ * chunks; piece++)
      origin.push_back(blocks_ == 1 ? collective_.root : piece / chunks);
    for (size_t half = 0; half < graphs_.size(); half++) {
      const double piece_bytes = bytes_ / blocks_ / chunks / slices(chunks);
      const Timetable table = race(graphs_[half], origin, piece_bytes, rules);
      spent += table.looks;
      if (!table.complete) return spent;
      plan.predicted_us +=
          replay_us(graphs_[half], origin, table, piece_bytes, slices(chunks), options_.fifo_depth);
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
    return spent;
  }

  double slices(int chunks) const {
    const double chunk = bytes_ / blocks_ / chunks;
    return std::clamp(std::ceil(chunk / options_.slice_bytes), 1.0,
                      static_cast<double>(options_.most_slices));
  }

  const Collective collective_;
  const double bytes_;
  const LatencyOptions options_;
  int blocks_ = 1;
  bool several_hosts_ = false;
  std::vector<HopGraph> graphs_;  // all_reduce: for gathering, and reversed for reducing
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
