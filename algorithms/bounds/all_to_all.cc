// See all_to_all.h.
#include "algorithms/bounds/all_to_all.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <queue>

#include "algorithms/bounds/refinement.h"

namespace weft {
namespace {

constexpr double kFar = std::numeric_limits<double>::infinity();
constexpr int64_t kMostCells = 1'500'000;  // takes a second or two
constexpr int kMostPivots = 20'000;
constexpr double kMostSearched = 5e7;  // links visited, in all rounds of improving lengths
constexpr int kRoundsPerCut = 20;      // cuts are tried once in this many rounds

class ConcurrentFlow {
 public:
  ConcurrentFlow(const Machine& machine, int nranks) : machine_(machine), ranks_(gpus(machine)) {
    ranks_.resize(static_cast<size_t>(nranks));
    leaving_.resize(machine.nodes.size());
    arriving_.resize(machine.nodes.size());
    for (size_t l = 0; l < machine.links.size(); l++)
      if (const Link& link = machine.links[l]; link.gbps > 0 && link.from != link.to) {
        leaving_[static_cast<size_t>(link.from)].push_back(static_cast<int>(l));
        arriving_[static_cast<size_t>(link.to)].push_back(static_cast<int>(l));
      }
  }

  bool connected() {
    const std::vector<double> ones(machine_.links.size(), 1.0);
    return total_distance(ones, nullptr) < kFar;
  }

  // The algbw that these lengths prove unreachable: N * machine's capacity / demands' need.
  double bound(const std::vector<double>& lengths, std::vector<double>* load = nullptr) {
    double carried = 0;
    for (size_t l = 0; l < lengths.size(); l++) carried += machine_.links[l].gbps * lengths[l];
    const double need = total_distance(lengths, load);
    return need > 0 ? static_cast<double>(ranks_.size()) * carried / need : kFar;
  }

  // Variables: the length of every link, and the distance of every node from every rank.
  SparseProgram program() const {
    const size_t links = machine_.links.size(), nodes = machine_.nodes.size();
    SparseProgram p;
    p.c.assign(links + ranks_.size() * nodes, 0.0);
    double capacity = 0;
    std::vector<SparseProgram::Entry> total;
    for (size_t l = 0; l < links; l++) {
      if (machine_.links[l].gbps <= 0) continue;
      total.push_back({static_cast<int32_t>(l), machine_.links[l].gbps});
      capacity += machine_.links[l].gbps;
    }
    p.rows.push_back(std::move(total));
    p.b.push_back(capacity);  // keeps lengths near 1
    for (size_t s = 0; s < ranks_.size(); s++) {
      const auto distance = [&](int node) {
        return static_cast<int32_t>(links + s * nodes + static_cast<size_t>(node));
      };
      for (const int rank : ranks_)
        if (rank != ranks_[s]) p.c[static_cast<size_t>(distance(rank))] = 1;
      for (size_t l = 0; l < links; l++) {
        const Link& link = machine_.links[l];
        if (link.gbps <= 0 || link.to == ranks_[s] || link.from == link.to) continue;
        std::vector<SparseProgram::Entry> row = {{distance(link.to), 1},
                                                 {static_cast<int32_t>(l), -1}};
        if (link.from != ranks_[s]) row.push_back({distance(link.from), -1});
        p.rows.push_back(std::move(row));
        p.b.push_back(0);
      }
    }
    return p;
  }

  // The dual optimum, or nothing if the program stays too large.
  std::optional<std::vector<double>> optimal_lengths() const {
    const SparseProgram large = program();
    const Quotient quotient = refine(large);
    if (static_cast<int64_t>(quotient.rows) * quotient.columns > kMostCells) return std::nullopt;
    const auto x = maximise(merged(large, quotient), kMostPivots);
    if (!x) return std::nullopt;
    std::vector<double> lengths(machine_.links.size());
    for (size_t l = 0; l < lengths.size(); l++)
      lengths[l] = (*x)[static_cast<size_t>(quotient.column_class[l])];
    return lengths;
  }

  // A cut is a choice of lengths too: 1 for the links across it. For every rank, tries the sets of
  // its nearest nodes, in both directions. While lengths still converge to those of a cut, this
  // already gives the cut's bound.
  double cut_bound(const std::vector<double>& lengths) {
    const auto n = static_cast<double>(ranks_.size());
    double best = kFar;
    for (const int source : ranks_) {
      shortest_paths(source, lengths);
      std::vector<bool> inside(machine_.nodes.size(), false);
      double out = 0, in = 0, ranks = 0;
      for (const int node : settled_) {
        inside[static_cast<size_t>(node)] = true;
        for (const int l : leaving_[static_cast<size_t>(node)]) {
          const Link& link = machine_.links[static_cast<size_t>(l)];
          inside[static_cast<size_t>(link.to)] ? in -= link.gbps : out += link.gbps;
        }
        for (const int l : arriving_[static_cast<size_t>(node)]) {
          const Link& link = machine_.links[static_cast<size_t>(l)];
          inside[static_cast<size_t>(link.from)] ? out -= link.gbps : in += link.gbps;
        }
        ranks += std::count(ranks_.begin(), ranks_.end(), node);
        if (ranks == n) break;
        best = std::min(best, std::min(out, in) / (ranks * (n - ranks)));
      }
    }
    return n * best;
  }

  // Lengthens the links that shortest paths would overload, round by round.
  double improved_bound() {
    std::vector<double> lengths, load;
    for (const Link& link : machine_.links) lengths.push_back(link.gbps > 0 ? 1 / link.gbps : 0);
    double best = kFar;
    const double each = static_cast<double>(ranks_.size() * machine_.links.size());
    const int rounds = static_cast<int>(std::clamp(kMostSearched / each, 10.0, 1000.0));
    for (int round = 0; round < rounds; round++) {
      best = std::min(best, bound(lengths, &load));
      if (round % kRoundsPerCut == 0) best = std::min(best, cut_bound(lengths));
      double worst = 0;
      for (size_t l = 0; l < load.size(); l++)
        if (machine_.links[l].gbps > 0) worst = std::max(worst, load[l] / machine_.links[l].gbps);
      for (size_t l = 0; l < load.size(); l++)
        if (machine_.links[l].gbps > 0)
          lengths[l] *= 1 + 0.2 * load[l] / machine_.links[l].gbps / worst;
    }
    return best;
  }

 private:
  // Sum over all pairs of ranks. Counts in `load` how many pairs cross each link.
  double total_distance(const std::vector<double>& lengths, std::vector<double>* load) {
    double total = 0;
    if (load != nullptr) load->assign(lengths.size(), 0.0);
    for (const int source : ranks_) {
      shortest_paths(source, lengths);
      for (const int target : ranks_) total += distance_[static_cast<size_t>(target)];
      if (load == nullptr) continue;
      std::vector<double> below(machine_.nodes.size(), 0.0);
      for (const int target : ranks_) below[static_cast<size_t>(target)] = 1;
      for (auto it = settled_.rbegin(); it != settled_.rend(); ++it) {
        const int via = arrived_by_[static_cast<size_t>(*it)];
        if (via < 0) continue;
        (*load)[static_cast<size_t>(via)] += below[static_cast<size_t>(*it)];
        below[static_cast<size_t>(machine_.links[static_cast<size_t>(via)].from)] +=
            below[static_cast<size_t>(*it)];
      }
    }
    return total;
  }

  void shortest_paths(int source, const std::vector<double>& lengths) {
    distance_.assign(machine_.nodes.size(), kFar);
    arrived_by_.assign(machine_.nodes.size(), -1);
    settled_.clear();
    std::vector<bool> done(machine_.nodes.size(), false);
    std::priority_queue<std::pair<double, int>, std::vector<std::pair<double, int>>, std::greater<>>
        queue;
    distance_[static_cast<size_t>(source)] = 0;
    queue.push({0.0, source});
    while (!queue.empty()) {
      const auto [at, node] = queue.top();
      queue.pop();
      if (done[static_cast<size_t>(node)]) continue;
      done[static_cast<size_t>(node)] = true;
      settled_.push_back(node);
      for (const int l : leaving_[static_cast<size_t>(node)]) {
        const auto to = static_cast<size_t>(machine_.links[static_cast<size_t>(l)].to);
        const double there = at + lengths[static_cast<size_t>(l)];
        if (there >= distance_[to]) continue;
        distance_[to] = there;
        arrived_by_[to] = l;
        queue.push({there, static_cast<int>(to)});
      }
    }
  }

  const Machine& machine_;
  std::vector<int> ranks_;
  std::vector<std::vector<int>> leaving_, arriving_;  // links per node
  std::vector<double> distance_;
  std::vector<int> arrived_by_, settled_;
};

}  // namespace

Bound all_to_all_bound(const Machine& machine, int nranks) {
  ConcurrentFlow flow(machine, nranks);
  if (!flow.connected()) return {0, true, {}};
  if (const auto lengths = flow.optimal_lengths()) {
    Bound bound{flow.bound(*lengths), true, {}};
    for (size_t l = 0; l < lengths->size(); l++)
      if ((*lengths)[l] > 1e-9) bound.narrow.push_back(static_cast<int>(l));
    return bound;
  }
  return {flow.improved_bound(), false, {}};
}

}  // namespace weft
